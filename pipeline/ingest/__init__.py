"""Raw graph → store.

In: published datasets, edge lists, node tables, archives, generated graphs. Out: a store with its graph,
features, labels and splits.

May import: runtime, config, storage, engine, tracking, store.

Public names, by module:
    edgelists: TEXT_SUFFIXES, TextFormat
    external_sort: MEMORY_EDGES
    generators: power_law
    networkit_graphs: Generator, measure_structure, networkit_graph, power_law_graph, search_distances,
        time_search
    published:
    pyg:
    stage: DEFAULT_NODES, Ingested, describe_source, existing_parent, ingest, is_collection, is_generated,
        options_from, read_source, short_name
"""
