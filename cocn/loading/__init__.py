"""Mini-batches of segments from a graph in memory: orders of the nodes, windows over them, batches.

In: a graph as arrays. Out: :class:`cocn.SegmentBatch` objects. Every module except `loader` needs only numpy
and numba, so that a process which cuts windows does not load torch.
"""
