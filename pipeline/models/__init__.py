"""Settings → network; opponents; metrics.

In: a configuration and the content of a store. Out: a network, and scores of its predictions.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments.

Public names, by module:
    metrics: Evaluation, Predictions, chosen_metric, evaluate_predictions, gather_from_ranks, link_ranks,
        score
    networks: FAMILY, Inputs, MODELS, Network, block_names, build_model, check_model, position_source,
        reads_blocks, resolve_task, streams
    opponents: OPPONENTS, Opponent, OpponentGraph, RowBatch
    opponents.blocks: Block, compute_blocks
    opponents.inputs: adjacency_matrix, degree_features
    opponents.perceptrons: RowOpponent
    parallel: distribute
    recipes: with_model
    target_metrics: score_labels, score_values
    tasks: read_outputs, read_targets
"""
