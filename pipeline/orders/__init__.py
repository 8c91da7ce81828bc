"""Positions → one order per head.

In: the graph and its positions. Out: sequences of nodes that bring the ends of edges close.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets, positions.

Public names, by module:
    coverage: Coverage, adjacency_density, measure_coverage
    sequences: Sequences, dense_ranks, from_order, place_head, sequence, tie_order
    stage: Family, OrderParameters, OrderSummary, STAGE, head_positions, write_orders
"""
