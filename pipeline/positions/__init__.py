"""Store → distance profiles → positions.

In: the graph of a store. Out: the stage `positions`: how many nodes are at each distance, and r_A.

May import: runtime, config, storage, engine, tracking, store, ingest, paper, presets.

Public names, by module:
    profiles: Layout, count_edge_visits, lay_out
    search: BYTES_IN_ROW, MAX_SOURCES, NO_LIMIT, Searcher, Sums
    stage: COLUMN_LANDMARKS, Choice, DEFAULT_BUDGET_SECONDS, LANDMARKS, NANOSECONDS_PER_VISIT,
        PositionParameters, STAGE, resolve_parameters, write_positions
"""
