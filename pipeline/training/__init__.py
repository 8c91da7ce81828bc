"""One loop, what feeds it, checkpoints, and Ray Train.

In: a store and a configuration. Out: checkpoints, a result and a tracked run.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models.

Public names, by module:
    campaign: Campaign, check_models, curve_of, run_campaign, scores_at_best_epoch, vary
    checkpoint: TrainState, WEIGHTS, find_checkpoint, latest_checkpoint, load_weights, read_origin
    collection_feed: evaluation_batches
    estimate: Plan, make_plan
    feeds: SegmentFeed, open_feed
    graph_pool: read_pool
    hidden_links: read_links
    inputs: open_graph, part_code, part_of_rows, read_graph, read_node_table
    job: TrainJob
    launch: RunNote, compared_as, read_note, train, training_directory, training_mirror
    loop: train_worker
    mlflow_model: row_kind
    needs: resolve_needs
    opponent_inputs: read_opponent_graph, read_rows
    optimisation: agree_on_step, check_finite, make_optimiser, set_learning_rate, step_seed, take_step
    origin: Origin
    preflight: check_graph, check_places, check_resources, check_settings, require_source
    prepare: Prepared, STORES, default_store, open_prepared, prepare
    registration: register_best
    remote_copy: RUN_FILE, open_checkpoint
    results: EpochRecord, TrainResult, read_epochs, read_result
    row_feed: row_batches
    segment_sources: open_part, sequence_segments
"""
