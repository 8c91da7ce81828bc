"""Nodes that die, jobs that are stopped: no finished work is lost, and the result is the same."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch

from jobs import preprocess, train
from pipeline.cluster.job_api import Cluster, connect
from pipeline.cluster.submission import StageName, submit
from pipeline.config.loading import load_config
from pipeline.store.access import open_store
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.training.results import EpochRecord, read_epochs
from tests.jobs.test_submit import contents, settings
from tests.nodes import Nodes

pytestmark = pytest.mark.cluster

# Many small groups of sources, so that a fault falls between two of them.
GRAPH = {"data": {"side": 60}, "positions": {"depth": "full", "batch_sources": 64}}
# A checkpoint after every step, and enough steps to be caught among them.
TRAINING = {"train": {"epochs": 40, "batch_size": 16, "checkpoint_seconds": 0}}
PATIENCE_SECONDS = 240


@pytest.fixture
def cluster(ray_nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("RAY_AUTH_TOKEN", ray_nodes.token)
    return connect(ray_nodes.dashboard)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert preprocess.main([str(settings(directory, **GRAPH))]) == 0
    return directory / "store"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """A training that nothing disturbs, in this process."""
    directory = tmp_path_factory.mktemp("trained")
    torch.set_num_threads(1)
    assert train.main([str(settings(directory, **TRAINING))]) == 0
    return directory


def start(cluster: Cluster, stage: StageName, config: Path) -> str:
    # Without an upload: compiled kernels are found where the other tests left them.
    return submit(stage, load_config(config), cluster, upload=False).id


def wait_until(condition: Callable[[], bool], cluster: Cluster, job: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, cluster.logs(job)
        assert not cluster.job(job).finished, cluster.logs(job)
        time.sleep(0.02)


def finish(cluster: Cluster, job: str) -> None:
    assert cluster.wait(job, PATIENCE_SECONDS).status == "SUCCEEDED", cluster.logs(job)


def finished_groups(store: Path) -> int:
    return len(list(store.glob(".partial/positions-*/scratch/profiles-*.arrow")))


def epochs(output: Path) -> list[EpochRecord]:
    found = [read_epochs(path) for path in (output / "trainings").glob("[!.]*")]
    return found[0] if found else []


def losses(directory: Path) -> list[float]:
    """Loss of every epoch, none missing."""
    found = epochs(directory / "runs")
    assert [record.epoch for record in found] == list(range(TRAINING["train"]["epochs"]))
    return [record.train_loss for record in found]


def running(nodes: Nodes) -> Iterator[tuple[psutil.Process, list[str]]]:
    """The processes of all nodes with their command lines."""
    for process in psutil.Process(nodes.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield process, process.cmdline()


def workers(nodes: Nodes) -> int:
    """Training processes on all nodes."""
    return sum("RayTrainWorker" in " ".join(words) for _, words in running(nodes))


def test_a_node_dies_while_positions_are_computed(
    cluster: Cluster, ray_nodes: Nodes, undisturbed: Path, tmp_path: Path
) -> None:
    job = start(cluster, "preprocess", settings(tmp_path, **GRAPH))
    wait_until(lambda: finished_groups(tmp_path / "store") > 0, cluster, job)
    assert ray_nodes.kill_node() > 1
    ray_nodes.add_node()
    finish(cluster, job)
    assert contents(tmp_path / "store") == contents(undisturbed)


def test_a_stopped_job_goes_on_when_it_is_submitted_again(
    cluster: Cluster, undisturbed: Path, tmp_path: Path
) -> None:
    config = settings(tmp_path, **GRAPH)
    job = start(cluster, "preprocess", config)
    wait_until(lambda: finished_groups(tmp_path / "store") > 2, cluster, job)
    cluster.stop(job)
    assert cluster.wait(job, PATIENCE_SECONDS).status == "STOPPED"
    assert not open_store(tmp_path / "store").has("positions")
    finish(cluster, start(cluster, "preprocess", config))
    measured = open_store(tmp_path / "store").timings()["positions"]
    assert measured.resumed_batches
    assert contents(tmp_path / "store") == contents(undisturbed)


def test_a_stopped_training_ends_its_runs_and_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    config = settings(tmp_path, **TRAINING, data={"store": None})
    tracked = TrackingStore(f"sqlite:///{tmp_path / 'runs/mlflow.db'}")
    job = start(cluster, "train", config)
    wait_until(lambda: len(epochs(tmp_path / "runs")) > 2, cluster, job)
    cluster.stop(job)
    assert cluster.wait(job, PATIENCE_SECONDS).status == "STOPPED"
    assert {run.status for run in tracked.read_runs("cocn")} == {"KILLED"}, cluster.logs(job)
    before = len(epochs(tmp_path / "runs"))
    assert before < TRAINING["train"]["epochs"]
    finish(cluster, start(cluster, "train", config))
    assert len(epochs(tmp_path / "runs")) == TRAINING["train"]["epochs"]
    assert [run.status for run in tracked.read_runs("cocn")].count("FINISHED") == 2


def test_a_killed_driver_is_submitted_again(
    cluster: Cluster, ray_nodes: Nodes, trained: Path, tmp_path: Path
) -> None:
    config = settings(tmp_path, **TRAINING, data={"store": str(trained / "store")})
    job = start(cluster, "train", config)
    wait_until(lambda: len(epochs(tmp_path / "runs")) > 2, cluster, job)
    drivers = [process for process, words in running(ray_nodes) if words[1:3] == ["-m", "jobs.train"]]
    for process in drivers:
        process.kill()
    assert len(drivers) == 1, cluster.logs(job)
    assert cluster.wait(job, PATIENCE_SECONDS).status == "FAILED"
    finish(cluster, start(cluster, "train", config))
    assert losses(tmp_path) == losses(trained)


def test_a_range_of_workers_shrinks_and_grows_with_the_cluster(
    cluster: Cluster, ray_nodes: Nodes, trained: Path, tmp_path: Path
) -> None:
    elastic = {"workers": "1..4", "resize_seconds": 3}
    # Long enough that only the test ends it; epochs do not depend on how many follow.
    longer = {"train": {**TRAINING["train"], "epochs": 100_000}}
    config = settings(tmp_path, **longer, data={"store": str(trained / "store")}, resources=elastic)
    job = start(cluster, "train", config)
    wait_until(lambda: len(epochs(tmp_path / "runs")) > 2, cluster, job)
    assert workers(ray_nodes) == 2
    assert ray_nodes.kill_node() > 1
    before = len(epochs(tmp_path / "runs"))
    wait_until(lambda: len(epochs(tmp_path / "runs")) > before + 1, cluster, job)
    assert workers(ray_nodes) == 1
    ray_nodes.add_node()
    wait_until(lambda: workers(ray_nodes) == 2, cluster, job)
    expected = losses(trained)
    before = max(len(epochs(tmp_path / "runs")), len(expected))
    wait_until(lambda: len(epochs(tmp_path / "runs")) > before + 1, cluster, job)
    cluster.stop(job)
    assert cluster.wait(job, PATIENCE_SECONDS).status == "STOPPED"
    found = [record.train_loss for record in epochs(tmp_path / "runs")]
    assert found[: len(expected)] == pytest.approx(expected, abs=1e-5)


def test_a_node_dies_in_training(cluster: Cluster, ray_nodes: Nodes, trained: Path, tmp_path: Path) -> None:
    config = settings(tmp_path, **TRAINING, data={"store": str(trained / "store")}, resources={"workers": 2})
    job = start(cluster, "train", config)
    wait_until(lambda: len(epochs(tmp_path / "runs")) > 2, cluster, job)
    assert ray_nodes.kill_node() > 1
    ray_nodes.add_node()
    finish(cluster, job)
    assert losses(tmp_path) == pytest.approx(losses(trained), abs=1e-5)
