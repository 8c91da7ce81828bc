"""All models on one graph under one protocol: who wins, by how much, how surely and at what cost.

A name or a path comes in; a table, paired tests, a sentence and a report come out. May import from every
package up to `comparison`.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions, orders,
features, segments, models, training, prediction, comparison.

Public names, by module:
    entrants: Request
    verdict: race, race_table
"""
