"""What models read of a node in addition to its own features: averages over neighbours, and tie arrangement.

In: features and the graph of a store. Out: the stages `propagated-K` and `arrangement`.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders.

Public names, by module:
    arrangement: ArrangementSummary, STAGE, write_arrangement
    blocks: open_block, stage_name
    own: OWN, is_wide
    propagation: open_propagated, propagate_features, stage_name
    selection: block_widths, count_training_nodes, graph_blocks, hop_blocks, is_private, is_tiny,
        streaming_blocks, window_block, write_blocks
    structure: STRUCTURE
"""
