"""The paper as data: its results as printed, where it misprints, its benchmarks and their settings."""

from pipeline.paper.tables import (
    Misprint,
    Result,
    Table,
    load_misprints,
    load_tables,
    paper_result,
)

__all__ = ["Misprint", "Result", "Table", "load_misprints", "load_tables", "paper_result"]
