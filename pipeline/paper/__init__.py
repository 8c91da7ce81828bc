"""The paper as data: its results as printed, where it misprints, its benchmarks and their settings.

May import: runtime, config, storage, engine, tracking, store, ingest.

Public names, by module:
    registry: BENCHMARKS, BENCHMARKS_BY_NAME, FAMILY, find_benchmark
    tables: Result, Table, load_tables
"""

from pipeline.paper.tables import (
    Misprint,
    Result,
    Table,
    load_misprints,
    load_tables,
    paper_result,
)

__all__ = ["Misprint", "Result", "Table", "load_misprints", "load_tables", "paper_result"]
