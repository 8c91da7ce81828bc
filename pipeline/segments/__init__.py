"""Orders → windows → shards → mini-batches.

In: one order per head. Out: circular segments in Arrow shards, and the loader that streams them.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features.

Public names, by module:
    adjacency_plots: MAX_BINS, draw_densities, write_image, write_plots
    batching: BatchPlan, EpochOrder
    loader: LoaderState, SegmentLoader
    records: MemorySource, NodeTable, Records, SegmentSource, gather_columns
    stage: PARTS, SegmentSummary, open_segments, segment_parameters, stage_name, write_segments
    windows: Segments, build_segments, check_length
"""
