"""The benchmark reports what it promises; its numbers are for machines, not for tests."""

import dataclasses
from pathlib import Path

import pytest

from pipeline.benchmarks import segments


def stream_here(directory: Path, nodes: int) -> int:
    return segments.stream(segments.make_store(directory / f"store-{nodes}", nodes).path)


def test_reports_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    # Fresh processes make the memory comparable, which is of no use here and slow.
    monkeypatch.setattr(segments, "peak_of_streaming", stream_here)
    cost = dataclasses.asdict(segments.run(nodes=300, small_nodes=200, large_nodes=400))
    promised = {"build_seconds_all_heads", "build_vs_sort", "rows_per_second", "loader_vs_model"}
    assert all(cost[name] > 0 for name in promised)
    assert cost["resident_growth"] == cost["resident_bytes_large"] / cost["resident_bytes_small"] - 1
