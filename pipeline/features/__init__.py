"""What models read of a node besides its own features: averages over neighbours, and how ties are arranged.

In: features and the graph of a store. Out: the stages `propagated-K` and `arrangement`.
"""
