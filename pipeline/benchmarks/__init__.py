"""Measurements, one module per subject; each has `run(...)` and returns a frozen dataclass.

In: the size of a measurement. Out: times, throughput and memory, measured on this machine.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction, comparison, race, tuning, cluster, reproduce.

Public names, by module:
    baselines: run
    expanded: run
    fullgraph: run
    history: append, measure
    positions: run
    segments: run
    start: run
    tracking: run
    train: run
"""
