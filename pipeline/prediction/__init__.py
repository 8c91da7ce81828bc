"""Checkpoint → predictions, as files or through MLflow.

In: a checkpoint and a store. Out: classes and probabilities.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training.

Public names, by module:
    inference: Prediction, predict
    node_tables: Floats
    run_checkpoints: checkpoint_of_run
    serving: Answers, open_answers
"""
