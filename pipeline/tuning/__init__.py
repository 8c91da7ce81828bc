"""Search for good settings: trials on Ray Tune, the best as a configuration file, and a report on what
mattered.

In: a store, a configuration and a space of settings. Out: `best.yaml`, `report.html`, a run per trial.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction, comparison, race.

Public names, by module:
    durations: parse_duration
    outcome: Tuned
    search: Budget, search
    space: read_space
"""
