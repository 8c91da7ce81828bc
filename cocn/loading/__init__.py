"""Mini-batches of segments from a graph in memory: orders of the nodes, windows over them, batches.

In: a graph as arrays. Out: :class:`cocn.SegmentBatch` objects. All modules but `loader` need numpy and numba
alone, so that a process which cuts windows does not load torch.
"""
