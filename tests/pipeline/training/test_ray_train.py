"""Groups of workers: ranges of them, and one line about what went wrong in one."""

import contextlib
import threading
import time
from pathlib import Path

import psutil
import pytest

from pipeline.config.loading import ConfigError, load_config
from pipeline.config.locations import Uri
from pipeline.storage.object_store import Remote
from pipeline.store.graph_store import GraphStore
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.ray_train import (
    explain_failure,
    failure_note,
    leave_failure,
    ray_worker,
    read_failure,
    train_on_ray,
)
from pipeline.training.results import read_epochs
from tests.pipeline.conftest import tiny_config
from tests.storage import Storage


def make_job(store: GraphStore, **settings: object) -> TrainJob:
    return TrainJob(tiny_config(store.path.parent, **settings), store.path, store.path.parent)


@pytest.mark.parametrize(
    ("given", "ends"), [(3, (3, 3)), ("3", (3, 3)), ("2..8", (2, 8)), ("4..4", (4, 4)), ("01..2", (1, 2))]
)
def test_workers_are_a_number_or_a_range(given: object, ends: tuple[int, int]) -> None:
    resources = load_config(None, {"resources.workers": given}).resources
    assert (resources.least_workers, resources.most_workers) == ends


@pytest.mark.parametrize("given", [0, "0..2", "8..2", "2..", "..3", "two", 1.5, "2-8"])
def test_anything_else_is_one_line(given: object) -> None:
    with pytest.raises(ConfigError, match=r"a number of workers, or a range such as 2..8 \(got "):
        load_config(None, {"resources.workers": given})


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_a_range_runs_as_many_as_there_is_room_for(
    tiny_store: GraphStore, tmp_path: Path, local_ray: None
) -> None:
    config = tiny_config(tmp_path, model__dropout=0.0, train__epochs=6, resources__workers="1..5")
    jobs = [TrainJob(config, tiny_store.path, tmp_path / name) for name in ("alone", "elastic")]
    for job in jobs:
        job.directory.mkdir()
    train_worker(jobs[0])
    seen: set[int] = set()
    done = threading.Event()

    def count() -> None:
        while not done.is_set():
            seen.add(sum("RayTrainWorker" in line for line in command_lines()))
            time.sleep(0.05)

    watcher = threading.Thread(target=count)
    watcher.start()
    try:
        train_on_ray(jobs[1])
    finally:
        done.set()
        watcher.join(300)
    assert max(seen) == 2  # the CPUs of the tests' Ray
    losses = [[record.train_loss for record in read_epochs(job.directory)] for job in jobs]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)


def command_lines() -> list[str]:
    """Of every process that the tests started and that is still there."""
    lines = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


def test_a_worker_does_not_repeat_what_a_rank_found_wrong(tiny_store: GraphStore) -> None:
    job = make_job(tiny_store)
    failure_note(job, "a").write_text("Expected a finite loss (got nan)")
    ray_worker({"job": job, "threads": 1, "attempt": "a"})
    assert not list(job.directory.glob("last-*"))


@pytest.mark.parametrize(
    "death", ["ray.exceptions.OutOfMemoryError: 1.2 GB", "killed due to memory pressure"]
)
def test_a_death_by_memory_says_what_to_lower(tiny_store: GraphStore, death: str) -> None:
    told = explain_failure(
        make_job(tiny_store), RuntimeError(f"Training failed due to worker errors:\n{death}")
    )
    assert "lower train.batch_size" in told
    assert "\n" not in told


def test_any_other_death_is_told_in_one_line(tiny_store: GraphStore) -> None:
    told = explain_failure(make_job(tiny_store), RuntimeError("worker errors:\n  File x\nKeyError: 'a'\n"))
    assert "KeyError: 'a'" in told
    assert "continues from the last checkpoint" in told
    assert "\n" not in told


def test_what_a_rank_found_wrong_reaches_other_nodes(
    tiny_store: GraphStore, storage: Storage, tmp_path: Path
) -> None:
    mirror = Remote(Uri(storage.uri("told")))
    jobs = [
        TrainJob(tiny_config(tmp_path), tiny_store.path, tmp_path / name, mirror=mirror)
        for name in ("one node", "another")
    ]
    for job in jobs:
        job.directory.mkdir()
    leave_failure(jobs[0], "a", "Expected a finite loss (got nan)")
    assert read_failure(jobs[1], "a") == "Expected a finite loss (got nan)"
    assert read_failure(jobs[1], "b") is None
