"""The graph store: manifest, stages, arrays, splits.

In: tables of a stage. Out: memory-mapped arrays under a manifest with digests.
"""
