"""The benchmark measures what it claims: equal networks, all fields finite."""

import math

from pipeline.benchmarks.expanded import run


def test_a_small_run_compares_equal_networks() -> None:
    result = run(250, 1000, (100, 200))
    assert result.max_abs_error < 1e-3
    assert result.speedup_vs_dense > 0
    assert result.peak_memory_ratio > 1
    assert math.isfinite(result.growth)
