"""Orders → windows → shards → mini-batches.

In: one order per head. Out: circular segments in Arrow shards, and the loader that streams them.
"""
