"""A search from beginning to end, and one that is killed and continues."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.config.loading import Config, load_config
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.tuning.search import Budget, search
from pipeline.tuning.space import Choices, Range
from tests.pipeline.conftest import tiny_config

ROOT = Path(__file__).resolve().parents[3]
SPACE = {"train.learning_rate": Range(1e-3, 3e-2, "log"), "model.kernel_size": Choices((3, 4))}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def tuned_config(tmp_path: Path, tracking_database: Path) -> Config:
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    return tiny_config(tmp_path, train__epochs=2, model__propagated_features=0, model__recipe="paper")


def test_a_search_ends_with_a_file_a_page_and_a_run_per_trial(
    tiny_store: GraphStore, tuned_config: Config, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AIR_NEW_OUTPUT", "0")
    budget = Budget(trials=2, grace=2)
    done = search(tuned_config, tiny_store, SPACE, budget)
    assert [trial.status for trial in done.trials] == ["finished", "finished"]
    assert done.best.val_metric == max(trial.val_metric or 0 for trial in done.trials)
    assert load_config([done.config_file]).train.learning_rate == done.best.point["train.learning_rate"]
    assert done.report.read_text().startswith("<!doctype html>")
    store = TrackingStore(f"sqlite:///{tuned_config.output / 'mlflow.db'}")
    runs = store.read_runs("cocn")
    parents = [run for run in runs if run.parent_id is None]
    assert [run.run_id for run in parents] == [done.parent_run]
    assert {run.parent_id for run in runs if run.parent_id} == {done.parent_run}
    assert {run.status for run in runs} == {"FINISHED"}
    assert len(runs) == 3
    again = search(tuned_config, tiny_store, SPACE, budget)
    assert again.trials == done.trials
    assert again.parent_run == done.parent_run


def call(directory: Path, *words: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "jobs.cli",
        "tune",
        "segment",
        "--data",
        "minesweeper",
        "--output",
        str(directory),
    ]
    settings = ["data.side=12", "model.heads=2", "model.hidden_channels=8", "train.batch_size=20"]
    for setting in settings:
        command += ["--set", setting]
    return subprocess.Popen(
        [*command, *words, "--json"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


@pytest.mark.cluster
def test_a_killed_search_continues(tmp_path: Path) -> None:
    words = ("--trials", "4", "--epochs", "12", "--grace", "12", "--concurrent", "1")
    first = call(tmp_path, *words)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("trainings/*/result.json")):
        assert time.monotonic() < deadline, "no trial finished"
        assert first.poll() is None, "the search ended too soon"
        time.sleep(0.2)
    time.sleep(3)  # Ray Tune notes where it stands every two seconds
    os.killpg(first.pid, signal.SIGKILL)
    if first.stdout is not None:
        first.stdout.close()
    first.wait()
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("trainings/*/result.json")}
    parent = json.loads(next(tmp_path.glob("tune/*/parent.json")).read_text())["key"]
    out, _ = call(tmp_path, *words).communicate(timeout=400)
    done = json.loads(out.strip().splitlines()[-1])
    assert [trial["status"] for trial in done["trials"]] == ["finished"] * 4
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert json.loads(next(tmp_path.glob("tune/*/parent.json")).read_text())["key"] == parent
