"""Processes killed in the middle of an epoch: the same command continues and ends with the same weights."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import torch
import torch.multiprocessing as multiprocessing

from pipeline.config.loading import Config, to_yaml
from pipeline.prediction.inference import predict
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_server import free_port
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.training.checkpoint import TrainState, find_checkpoint, latest_checkpoint, read_state
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.ray_train import train_on_ray
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import tiny_config

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_SECONDS = 240


def small_steps(output: Path, **settings: object) -> Config:
    """Many small steps with a checkpoint after each, so that a kill finds one in mid-epoch."""
    return tiny_config(
        output, **{"train__batch_size": 4, "train__epochs": 4, "train__checkpoint_seconds": 0, **settings}
    )


def wait_for_mid_epoch(find: Callable[[], Path | None], alive: Callable[[], bool]) -> TrainState:
    """Wait until a training is in the middle of its second epoch."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline and alive():
        time.sleep(0.005)
        directory = find()
        path = latest_checkpoint(directory, "last") if directory is not None else None
        try:
            state = read_state(path) if path is not None else TrainState()
        except FileNotFoundError:  # replaced by a newer one in between
            continue
        if state.epoch == 1 and state.cursor is not None and state.cursor.position > 20:
            return state
    raise AssertionError("the training was never seen in the middle of its second epoch")


def command_line(config: Config, directory: Path, database: Path) -> tuple[list[str], dict[str, Any]]:
    """`cocn train segment` with a configuration and an empty tracking database, and how to start it."""
    file = directory / "run.yaml"
    file.write_text(to_yaml(config))
    config.output.mkdir()
    shutil.copy(database, config.output / "mlflow.db")
    command = [sys.executable, "-m", "jobs.cli", "train", "segment", "--config", str(file), "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return command, {"cwd": ROOT, "env": {**environment, "OMP_NUM_THREADS": "1"}, "text": True}


def test_the_same_command_goes_on_after_its_process_was_killed(
    tiny_store: GraphStore, tmp_path: Path, tracking_database: Path
) -> None:
    torch.set_num_threads(1)
    output = tmp_path / "runs"
    config = small_steps(output, data__store=str(tiny_store.path))
    command, started = command_line(config, tmp_path, tracking_database)

    def directory() -> Path | None:
        return next((output / "trainings").glob("*-segment-*"), None)

    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **started)
    try:
        wait_for_mid_epoch(directory, lambda: first.poll() is None)
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(60)
    found = directory()
    assert found is not None
    assert read_result(found) is None

    second = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False, **started)
    assert second.returncode == 0, second.stderr
    resumed = json.loads(second.stdout.splitlines()[-1])["trainings"][0]

    whole = tmp_path / "whole"
    whole.mkdir()
    train_worker(TrainJob(config, tiny_store.path, whole))
    expected = read_result(whole)
    assert expected is not None
    assert resumed["weights_sha256"] == expected.weights_sha256
    losses = [[record.train_loss for record in read_epochs(place)] for place in (whole, found)]
    assert losses[0] == losses[1]
    tables = []
    for place in (whole, found):
        predict(find_checkpoint(place), tiny_store, tmp_path / f"{place.name}.parquet", embeddings=True)
        tables.append(pq.read_table(tmp_path / f"{place.name}.parquet"))
    assert tables[0].equals(tables[1])

    tracking = TrackingStore(f"sqlite:///{output / 'mlflow.db'}")
    runs = tracking.read_runs("cocn")
    trainings = [run for run in runs if run.tags["cocn.role"] == "child"]
    assert [run.status for run in trainings] == ["FINISHED"]
    points = tracking.read_history(trainings[0].run_id, "train_loss")
    assert sorted({point.step for point in points}) == [0, 1, 2, 3]
    assert sorted(run.status for run in runs if run.tags["cocn.role"] == "parent") == ["FAILED", "FINISHED"]


# What a script starts in the background ignores Ctrl-C, with all that this starts: here it counts again.
HEED_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("workers", "number", "reason"),
    [
        (1, signal.SIGINT, "interrupted"),
        (1, signal.SIGTERM, "terminated"),
        pytest.param(2, signal.SIGINT, "interrupted", marks=pytest.mark.cluster),
        pytest.param(2, signal.SIGTERM, "terminated", marks=pytest.mark.cluster),
    ],
)
def test_a_polite_end_leaves_no_run_that_seems_to_go_on(
    tiny_store: GraphStore,
    tmp_path: Path,
    tracking_database: Path,
    workers: int,
    number: signal.Signals,
    reason: str,
) -> None:
    output = tmp_path / "runs"
    settings = {"data__store": str(tiny_store.path), "train__epochs": 100_000, "resources__workers": workers}
    command, started = command_line(small_steps(output, **settings), tmp_path, tracking_database)
    command = [sys.executable, "-c", HEED_INTERRUPTS, *command]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, **started)
    try:
        wait_for_mid_epoch(
            lambda: next((output / "trainings").glob("*-segment-*"), None), lambda: process.poll() is None
        )
        # A terminal signals everything that it started; terminating a job signals only the job.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, told = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)
    assert process.returncode == 128 + number, told
    assert told.splitlines()[-1] == f"cocn: {reason}"
    runs = TrackingStore(f"sqlite:///{output / 'mlflow.db'}").read_runs("cocn")
    assert [run.status for run in runs] == ["KILLED", "KILLED"]
    assert list((output / "journals").iterdir()) == []


def _spawned(rank: int, job: TrainJob, port: int) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    train_worker(job, rank, 2)
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_a_group_of_workers_goes_on_after_one_was_killed(
    tiny_store: GraphStore, tmp_path: Path, local_ray: None
) -> None:
    config = small_steps(tmp_path, resources__workers=2)
    jobs = {name: TrainJob(config, tiny_store.path, tmp_path / name) for name in ("whole", "broken")}
    for job in jobs.values():
        job.directory.mkdir()
    multiprocessing.spawn(_spawned, (jobs["whole"], free_port()), nprocs=2)

    killed: list[int] = []

    def kill_one() -> None:
        wait_for_mid_epoch(lambda: jobs["broken"].directory, lambda: True)
        for process in psutil.Process().children(recursive=True):
            if not killed and "RayTrainWorker" in " ".join(process.cmdline()):
                process.kill()
                killed.append(process.pid)

    watcher = threading.Thread(target=kill_one, daemon=True)
    watcher.start()
    train_on_ray(jobs["broken"])
    watcher.join(300)
    assert killed
    whole, broken = (read_result(job.directory) for job in jobs.values())
    assert whole is not None
    assert broken is not None
    assert broken.weights_sha256 == whole.weights_sha256
    assert broken.test == whole.test
