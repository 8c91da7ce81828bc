"""The benchmark of cheap opponents completes and measures what it claims."""

from pipeline.benchmarks.baselines import run


def test_every_number_is_there() -> None:
    found = run(3000, epochs=3, rounds=1)
    assert found.nodes == 3000
    assert 150 < found.train_rows < 330
    ratios = (found.mlp_vs_plain_torch, found.sign_vs_plain_torch, found.sgc_epoch_vs_mlp)
    assert all(ratio > 0 for ratio in ratios)
    assert 0 < found.sgc_epoch_vs_first < 1
