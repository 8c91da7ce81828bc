"""Every stage as a job whose store, checkpoints and predictions are in an object store."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs import train
from pipeline.cluster.job_api import connect
from pipeline.prediction.inference import predict
from pipeline.store.access import open_store
from pipeline.tracking.mlflow_server import Server
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.launch import TRAININGS
from pipeline.training.results import read_epochs
from tests.jobs.conftest import Cocn
from tests.jobs.test_submit import contents, settings
from tests.nodes import Nodes
from tests.pipeline.storage.test_object_store import uploaded
from tests.storage import SECRET_KEY, Storage, cut_when

pytestmark = pytest.mark.cluster

# A checkpoint, and so a copy, after every step.
TRAINING = {"epochs": 8, "batch_size": 32, "checkpoint_seconds": 0}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """Everything on one machine, in files."""
    directory = tmp_path_factory.mktemp("alone")
    assert train.main([str(settings(directory, train=TRAINING))]) == 0
    [training] = training_directories(directory)
    store = open_store(directory / "store")
    predict(find_checkpoint(training), store, directory / "predictions.parquet", parallel=False)
    return directory


def training_directories(directory: Path) -> list[Path]:
    return [path for path in (directory / "runs" / TRAININGS).iterdir() if path.name[0] != "."]


def test_jobs_on_storage_survive_a_dropped_connection_and_tell_no_secret(
    cocn: Cocn,
    ray_nodes: Nodes,
    alone: Path,
    mlflow: Server,
    storage: Storage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_nodes.token)
    config = settings(
        tmp_path,
        data={"store": storage.uri("jobs/store")},
        train=TRAINING,
        resources={"workers": 2},
        tracking={"uri": mlflow.address, "experiment": "storage"},
        storage={"uri": storage.uri("jobs/runs"), "cache": str(ray_nodes.private / "cache")},
    )
    # What one node writes here no other sees.
    config.write_text(config.read_text().replace(str(tmp_path / "runs"), str(ray_nodes.private / "runs")))
    absent = cocn("submit", "train", config)
    assert absent.returncode == 2
    assert "cocn submit preprocess creates it" in absent.stderr
    outputs = []

    def run(stage: str) -> str:
        done = cocn("submit", stage, config, "--follow")
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout + done.stderr)
        return done.stdout

    assert json.loads(run("preprocess").splitlines()[-1])["store"] == storage.uri("jobs/store")

    def copied() -> bool:
        return any("last-0000000" in name for name in storage.names("jobs/runs"))

    watcher = cut_when(copied, storage, seconds=8)
    assert f"MLflow run: {mlflow.address}/#/experiments/" in run("train")
    watcher.join(300)
    written = json.loads(run("predict").splitlines()[-1])["out"]
    assert "report: s3://" in run("compare")

    assert uploaded(storage, "jobs/store") == contents(alone / "store")
    [here], [there] = training_directories(alone), training_directories(ray_nodes.private)
    losses = [[record.train_loss for record in read_epochs(path)] for path in (here, there)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    key = written.partition("?")[0].removeprefix("s3://bucket/")
    (tmp_path / "there.parquet").write_bytes(storage.read(key))
    tables = [pq.read_table(path) for path in (alone / "predictions.parquet", tmp_path / "there.parquet")]
    expected, found = (table.column("probabilities").to_pylist() for table in tables)
    assert found == [pytest.approx(row, abs=1e-5) for row in expected]
    assert b"<html" in storage.read("jobs/runs/report.html")

    tracked = TrackingStore(mlflow.address).read_runs("storage")
    jobs = connect(ray_nodes.dashboard).jobs().jobs
    told = [*outputs, *map(str, tracked), *map(str, jobs)]
    told += [path.read_text() for path in ray_nodes.private.rglob("*.json*")]
    assert len(tracked) == 2
    assert not [text for text in told if SECRET_KEY in text]
