"""Raw graph → store.

In: published data sets, edge lists, node tables, archives, generated graphs. Out: a store with its graph,
features, labels and splits.
"""
