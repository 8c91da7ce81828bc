"""Studies that do not train for a score find what they are meant to find."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.reproduce import complexity, information_loss
from pipeline.reproduce.orders import measure_likeness, measure_order
from pipeline.reproduce.records import Records
from pipeline.store.cleaning import clean_edges


def test_less_is_lost_the_sharper_the_permutation() -> None:
    lost = [
        information_loss.recover("ring", tau, epochs=300, patience=300).distortion for tau in (0.01, 10.0)
    ]
    assert lost[1] < 0.5 * lost[0]


def test_shapes_are_standardised_rings_and_grids() -> None:
    for shape, degree in (("ring", 2.0), ("grid", 3.5)):
        points, edges = information_loss.make_shape(shape)
        assert edges.size(1) / points.size(0) == degree
        torch.testing.assert_close(points.std(0, correction=0), torch.ones(2))


def test_an_order_along_a_path_has_all_edges_at_distance_one() -> None:
    path = clean_edges(np.arange(99), np.arange(1, 100), 100)[0]
    straight = measure_order(np.arange(100, dtype=np.int32), path)
    assert straight == {"mean_distance": pytest.approx(0.01), "near_diagonal": 1.0}
    shuffled = measure_order(np.random.default_rng(0).permutation(100).astype(np.int32), path)
    assert shuffled["mean_distance"] > 0.2


def test_nodes_alike_that_stand_together_have_likeness_one() -> None:
    features = np.repeat(np.eye(2, dtype=np.float32), 50, axis=0)
    together = measure_likeness(np.arange(100, dtype=np.int32), features)
    assert together == pytest.approx(0.98)
    apart = np.arange(100, dtype=np.int32).reshape(50, 2).T.reshape(-1).argsort().astype(np.int32)
    assert measure_likeness(apart.argsort().astype(np.int32), features) < together


def test_cases_that_are_recorded_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = Records(tmp_path)
    (first,) = complexity.run_cases(records, "cocn", models=["sparse"], largest=1000)
    assert set(first.values) == {"epoch_seconds", "prepare_seconds", "memory_mb"}
    assert first.values["memory_mb"] > 0

    def fail(*_: object) -> dict[str, float]:
        raise AssertionError("measured again")

    monkeypatch.setattr(complexity, "measure_apart", fail)
    assert list(complexity.run_cases(records, "cocn", models=["sparse"], largest=1000)) == [first]


@pytest.mark.parametrize("model", ["dense", "expanded", "segment"])
def test_every_model_can_be_measured(model: str) -> None:
    values = complexity.measure(model, 200)
    assert values["epoch_seconds"] > 0
