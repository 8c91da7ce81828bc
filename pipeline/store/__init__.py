"""The graph store: manifest, stages, arrays, splits.

In: tables of a stage. Out: memory-mapped arrays under a manifest with digests.

May import: runtime, config, storage, engine, tracking.

Public names, by module:
    access: create_store, find_store, has_manifest, open_store
    arrays: Answer, CSR, CollectionArrays, EDGE_FEATURES_FILE, Floats, GraphArrays, Ids, Integers, Pairs,
        SPLIT_NAMES, Task
    classes: class_names
    cleaning: CleaningReport, EdgeReport, clean_edges, component_labels, count_parts, describe, distinct,
        edge_sources, entry_rows, index_type, is_undirected
    graph_store: GraphStore, INGEST, PositionSummary
    manifest: MANIFEST_NAME, Manifest, StageTiming, other_parameters
    splits: NONE, TEST, TRAIN, VALIDATION, cross_validation, random_splits, rows_of_part, splits_from_masks
    stage: Stage
    timings: stage_seconds
"""
