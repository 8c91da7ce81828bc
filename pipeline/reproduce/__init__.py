"""The paper's tables and figures, reproduced: `studies` says what to train, `trained` trains it, the other
modules measure, `records` keeps every number, and `page` writes RESULTS.md from them.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction, comparison, race, tuning, cluster.

Public names, by module:
    command: Choices, Measured, Trained, run
    isomorphism: Outcome
    page: score
    trained: CellResult
"""
