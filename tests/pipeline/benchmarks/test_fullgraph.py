"""The benchmark of whole graphs reports what it promises."""

from pipeline.benchmarks import fullgraph


def test_reports_every_number() -> None:
    cost = fullgraph.run(1500, small_nodes=500, rounds=1)
    assert cost.nodes == 1500
    assert min(cost.step_seconds, cost.speedup, cost.gemm_share, cost.peak_memory_ratio) > 0
    assert 0 <= cost.system_time_share < 1
    assert cost.gemm_share < 1.5
