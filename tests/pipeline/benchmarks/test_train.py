"""The benchmark reports what it promises, and its baseline trains on the same segments as the store has."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from pipeline.benchmarks import train
from pipeline.benchmarks.resorting import ResortingBaseline
from pipeline.benchmarks.segments import make_store
from pipeline.orders.sequences import sequence
from pipeline.segments.windows import build_segments

SMALL = {
    "model__positions": "explicit",
    "model__hidden_channels": 4,
    "model__unit_layers": 1,
    "train__batch_size": 50,
    "train__learning_rate": 0.01,
}


def test_reports_every_number() -> None:
    cost = dataclasses.asdict(train.run(1100, small_nodes=1000, rounds=1))
    promised = {"step_seconds", "growth_vs_50k", "speedup_2_workers", "full_resort_ratio", "gemm_share"}
    assert all(cost[name] > 0 for name in promised)
    assert 0 < cost["data_share"] < 1


def test_the_baseline_cuts_the_segments_of_the_pipeline_and_learns(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", 300)
    baseline = ResortingBaseline(store, train.reference_config(**SMALL))
    positions = torch.rand(300, 8, generator=torch.Generator().manual_seed(0))
    arrangement = baseline._graph.arrangement.numpy()
    index, x, adjacency = baseline.segment_all(positions[arrangement])

    csr = store.csr()
    windows = build_segments(sequence(positions.numpy(), csr), csr, 8).windows(arrangement)
    assert np.array_equal(arrangement[index.numpy()], windows.ids)
    assert np.array_equal(x.numpy(), store.features()[windows.ids])
    assert adjacency.sum() > 0
    losses = [baseline.step() for _ in range(12)]
    assert losses[-1] < losses[0]
