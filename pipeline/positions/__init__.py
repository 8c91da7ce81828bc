"""Store → distance profiles → positions.

In: the graph of a store. Out: the stage `positions`: how many nodes lie how far away, and r_A.
"""
