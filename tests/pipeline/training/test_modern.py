"""Models of the modern recipe in the pipeline: prepared, trained, resumed, distributed and used."""

from pathlib import Path

import pytest
import torch

from pipeline.config.loading import Config
from pipeline.prediction.inference import predict
from pipeline.store.graph_store import GraphStore
from pipeline.training.campaign import vary
from pipeline.training.loop import train_worker
from pipeline.training.prepare import open_prepared
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import tiny_config
from tests.pipeline.training.test_collection_feed import kill_after
from tests.pipeline.training.test_loop import KilledError, _spawned, make_job, run

MODELS = ("segment", "sparse")


def prepared(output: Path, name: str, **settings: object) -> tuple[Config, GraphStore]:
    """A board with everything that a modern model reads, and the settings of its training."""
    config = tiny_config(
        output, model__recipe="modern", data__source="minesweeper", data__side=12, **settings
    )
    store = open_prepared(config, models=[name])
    return vary(config, name, 0, 0, store), store


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_killed_training_continues_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, windows: bool
) -> None:
    settings = {"model__windows": windows, "train__checkpoint_seconds": 0}
    config, store = prepared(tmp_path, name, **settings)
    assert config.model.recipe == "modern"
    _, whole = run(config, store, "whole")
    job = make_job(config, store, "killed")
    with monkeypatch.context() as patch:
        kill_after(2, patch)
        with pytest.raises(KilledError):
            train_worker(job)
    train_worker(job)
    resumed = read_result(job.directory)
    assert resumed is not None
    assert resumed.weights_sha256 == whole.weights_sha256
    assert "labels-0" in resumed.gates
    assert sum(resumed.gates.values()) == pytest.approx(1.0)
    table = predict(resumed.checkpoint, store, tmp_path / "predictions.parquet")
    assert table.num_rows == store.num_nodes


def test_one_and_two_workers_agree(tmp_path: Path) -> None:
    alone, together = [], []
    for name in MODELS:
        config, store = prepared(tmp_path, name, model__dropout=0.0)
        alone.append(run(config, store, f"alone-{name}")[0])
        together.append(make_job(config, store, f"together-{name}"))
    from pipeline.tracking.mlflow_server import free_port

    torch.multiprocessing.spawn(_spawned, (together, free_port()), nprocs=2)
    for one, two in zip(alone, together, strict=True):
        losses = [[record.train_loss for record in read_epochs(job.directory)] for job in (one, two)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)
