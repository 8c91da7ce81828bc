"""The benchmark of positions compares correctly, whatever the numbers are."""

import pytest

from pipeline.benchmarks.positions import Race, run


@pytest.mark.parametrize("generator", ["hyperbolic", "barabasi-albert"])
def test_small_graph(generator: str) -> None:
    result = run(1500, generator=generator)  # type: ignore[arg-type]
    assert result.mismatches == 0
    assert result.speedup_vs_networkit > 0
    assert result.edge_visits_per_second > 0
    assert result.nodes == 1500


def test_speedup_is_the_median_round() -> None:
    race = Race(ours=[1.0, 2.0, 1.0], sizes=[10, 10, 10], theirs=[1.0, 1.0, 4.0], mismatches=0)
    assert race.speedup(0.0) == 10.0
    assert race.speedup(0.1) == 5.0
