"""Runs with a real MLflow in a SQLite file: what is recorded, and how runs end."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pipeline.config.loading import Config, load_config
from pipeline.tracking import run_logger as tracker_module
from pipeline.tracking.journal import left_over
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.tracking.run_logger import Tracker
from pipeline.tracking.runs import (
    Earlier,
    Run,
    close_orphans,
    config_digest,
    flatten,
    start_child,
    start_parent,
    sync,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory, tracking_database: Path) -> Path:
    """One store for the module."""
    directory = tmp_path_factory.mktemp("with space")
    shutil.copy(tracking_database, directory / "mlflow.db")
    return directory


@pytest.fixture
def config(output: Path, request: pytest.FixtureRequest) -> Config:
    return load_config(None, {"output": output, "tracking.experiment": request.node.name})


@pytest.fixture
def store(output: Path) -> TrackingStore:
    return TrackingStore(f"sqlite:///{output / 'mlflow.db'}")


@pytest.fixture
def parent(config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = start_parent("test", config)
    yield run
    run.finish("KILLED")


def child_of(parent: Run, config: Config, **changes: object) -> Run:
    known: dict[str, object] = {"model": "segment", "dataset": "minesweeper", "seed": 1, "split": 2}
    return start_child(parent, config, **(known | changes))  # type: ignore[arg-type]


def journals(config: Config) -> list[Path]:
    return left_over(config.output / "journals")


def test_a_child_holds_what_was_logged_and_leaves_no_journal(
    parent: Run, config: Config, store: TrackingStore, tmp_path: Path
) -> None:
    figure = tmp_path / "figure.svg"
    figure.write_text("<svg/>")
    with child_of(parent, config, metric="roc_auc", tags={"cocn.store": "abc"}) as child:
        with Tracker(child.reference) as rank_zero:
            for step in range(5):
                rank_zero.log(step, {"train_loss": 1.0 / (step + 1), "val_metric": step / 10})
            rank_zero.log_artifact(figure, "figures")
        child.log(0, {"test_metric": 0.5})
    parent.finish()

    run = store.read_run(str(child.run_id))
    assert run.status == "FINISHED"
    assert run.parent_id == parent.run_id
    assert run.metrics["test_metric"] == 0.5
    assert run.params["train.epochs"] == str(config.train.epochs)
    assert run.tags["cocn.model"] == "segment"
    assert run.tags["cocn.store"] == "abc"
    assert run.tags["cocn.version.torch"]
    assert [(p.step, p.value) for p in store.read_history(run.run_id, "val_metric")] == [
        (step, step / 10) for step in range(5)
    ]
    assert {item.path for item in store.client.list_artifacts(run.run_id)} == {"config.yaml", "figures"}
    assert store.read_run(str(parent.run_id)).status == "FINISHED"
    assert journals(config) == []


def test_one_run_a_training_whatever_the_number_of_trackers(
    parent: Run, config: Config, store: TrackingStore
) -> None:
    child = child_of(parent, config)
    for step in range(2):
        with Tracker(child.reference) as rank_zero:
            rank_zero.log(step, {"train_loss": 1.0})
    child.finish()
    assert len(store.read_runs(config.tracking.experiment, parent.run_id)) == 1
    assert len(store.read_runs(config.tracking.experiment)) == 2


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("bad loss"), "FAILED"), (KeyboardInterrupt(), "KILLED")]
)
def test_an_error_ends_the_parent_and_its_children(
    config: Config, store: TrackingStore, error: BaseException, status: str
) -> None:
    def fail(parent: Run) -> None:
        child_of(parent, config)
        raise error

    with pytest.raises(type(error)), start_parent("test", config) as parent:
        fail(parent)
    runs = store.read_runs(config.tracking.experiment)
    assert [run.status for run in runs] == [status, status]


def test_a_killed_process_leaves_no_run_that_seems_to_go_on(config: Config, store: TrackingStore) -> None:
    program = f"""
        import time
        from pathlib import Path
        from pipeline.config.loading import load_config
        from pipeline.tracking.runs import start_child, start_parent
        config = load_config(None, {{"output": Path({str(config.output)!r}),
                                     "tracking.experiment": {config.tracking.experiment!r}}})
        parent = start_parent("test", config)
        child = start_child(parent, config, model="sparse", dataset="d", seed=0, split=0)
        child.log(3, {{"train_loss": 0.25}})
        print("ready", flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGKILL)
    assert {run.status for run in store.read_runs(config.tracking.experiment)} == {"RUNNING"}

    result = sync(config.output / "journals")
    assert (result.sent, result.waiting) == (2, 0)
    runs = store.read_runs(config.tracking.experiment)
    assert [run.status for run in runs] == ["FAILED", "FAILED"]
    assert [run.metrics for run in runs if run.parent_id] == [{"train_loss": 0.25}]
    assert journals(config) == []


def test_resuming_continues_the_same_run(parent: Run, config: Config, store: TrackingStore) -> None:
    first = child_of(parent, config)
    first.log(0, {"train_loss": 2.0})
    first.finish("FAILED")
    assert first.run_id is not None
    with child_of(parent, config, resume=Earlier(first.run_id, first.reference.key)) as second:
        assert second.run_id == first.run_id
        assert store.read_run(first.run_id).status == "RUNNING"
        second.log(1, {"train_loss": 1.0})
    run = store.read_run(first.run_id)
    assert run.status == "FINISHED"
    assert [p.value for p in store.read_history(run.run_id, "train_loss")] == [2.0, 1.0]
    assert len(store.read_runs(config.tracking.experiment, parent.run_id)) == 1


def test_sending_twice_leaves_one_copy(parent: Run, config: Config, store: TrackingStore) -> None:
    child = child_of(parent, config)
    child.log(0, {"train_loss": 1.0, "val_metric": float("nan")})
    assert child.flush()
    child._journal.update(offset=0, run_id=None)
    child.finish()
    run_id = store.find_run(config.tracking.experiment, child.reference.key)
    assert len(store.read_history(str(run_id), "train_loss")) == 1
    assert len(store.read_runs(config.tracking.experiment, parent.run_id)) == 1


def test_what_the_tracker_refuses_does_not_hold_up_the_rest(
    parent: Run, config: Config, store: TrackingStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    child = child_of(parent, config)
    child.log_artifact(tmp_path / "gone.txt")
    child.log_params({"train.epochs": "another value"})
    child.log(0, {"test_metric": 1.0})
    child.finish()
    assert store.read_run(str(child.run_id)).metrics == {"test_metric": 1.0}
    assert caplog.text.count("the tracker refused") == 2


def test_a_tracker_that_is_away_costs_one_warning_and_no_record(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: TrackingStore
) -> None:
    monkeypatch.setattr(tracker_module, "SEND_INTERVAL_SECONDS", 0.05)
    away = elsewhere(config, "http://user:secret@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with start_parent("test", away) as parent, child_of(parent, away) as child:
        assert child.run_id is None
        with Tracker(child.reference) as rank_zero:
            for step in range(3):
                rank_zero.log(step, {"val_metric": step / 2})
    assert len(journals(config)) == 3
    assert "secret" not in "".join(path.read_text() for path in journals(config))
    assert "secret" not in caplog.text
    assert caplog.text.count("the tracker does not answer") == 1

    result = sync(config.output / "journals", store.uri)
    assert (result.sent, result.waiting, result.reason) == (3, 0, "")
    runs = store.read_runs(config.tracking.experiment)
    assert sorted(run.status for run in runs) == ["FINISHED", "FINISHED"]
    (synced,) = [run for run in runs if run.parent_id]
    assert [(p.step, p.value) for p in store.read_history(synced.run_id, "val_metric")] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
    ]
    assert sync(config.output / "journals", store.uri).sent == 0


def elsewhere(config: Config, uri: str) -> Config:
    return config.model_copy(update={"tracking": config.tracking.model_copy(update={"uri": uri})})


@pytest.fixture
def hanging() -> Iterator[str]:
    """Address of a server that accepts requests and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_training_that_began_while_the_tracker_hung_is_resumed_in_one_run(
    config: Config, monkeypatch: pytest.MonkeyPatch, store: TrackingStore, hanging: str
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = elsewhere(config, hanging)
    with start_parent("test", away) as parent:
        first = child_of(parent, away)
        first.log(0, {"train_loss": 2.0})
        first.finish("FAILED")
        assert first.run_id is None
        earlier = Earlier(None, first.reference.key)
        with child_of(parent, away, resume=earlier) as second:
            second.log(1, {"train_loss": 1.0})
    assert sync(config.output / "journals", store.uri).waiting == 0
    (run,) = [run for run in store.read_runs(config.tracking.experiment) if run.parent_id]
    assert run.status == "FINISHED"
    assert [p.value for p in store.read_history(run.run_id, "train_loss")] == [2.0, 1.0]


def test_a_run_leaves_the_journals_of_other_trackers_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch, store: TrackingStore
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    start_parent("test", elsewhere(config, "http://127.0.0.1:9")).finish()
    start_parent("test", config).finish()
    assert len(store.read_runs(config.tracking.experiment)) == 1
    (waiting,) = journals(config)
    assert "127.0.0.1:9" in waiting.read_text()
    assert sync(config.output / "journals").waiting == 1
    assert sync(config.output / "journals", store.uri).sent == 1


def test_a_full_disk_is_one_warning_and_no_error(config: Config, tmp_path: Path) -> None:
    program = f"""
        import resource
        from pathlib import Path
        from pipeline.config.loading import load_config
        from pipeline.tracking.runs import start_child, start_parent
        config = load_config(None, {{"output": Path({str(tmp_path)!r}), "tracking.uri": "http://127.0.0.1:9"}})
        parent = start_parent("test", config)
        child = start_child(parent, config, model="sparse", dataset="d", seed=0, split=0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        for step in range(2000):
            child.log(step, {{"train_loss": 0.25}})
        print("trained")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        env={**os.environ, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "trained\n", done.stderr
    assert done.returncode == 0
    assert done.stderr.count("records could not be written") == 1
    assert 10_000 < max(path.stat().st_size for path in (tmp_path / "journals").iterdir()) <= 20_000


def test_a_gpu_is_sampled_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tracker_module._sample_system()
    assert plain["system/process_memory_megabytes"] > 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**32))
    monkeypatch.setattr(torch.cuda, "utilization", lambda: 50)
    found = tracker_module._sample_system()
    assert found["system/gpu_0_memory_usage_megabytes"] == 3 * 1024
    assert found["system/gpu_0_memory_usage_percentage"] == 75
    assert found["system/gpu_0_utilization_percentage"] == 50


def test_a_live_run_is_no_orphan(parent: Run, config: Config) -> None:
    assert close_orphans(config.output / "journals") == 0


def test_parameters_are_flat_and_the_digest_ignores_what_does_not_decide(config: Config) -> None:
    assert flatten(config)["model.kernel_size"] == "5"
    indifferent = {
        "output": config.output / "x",
        "train.seed": 7,
        "data.split": 3,
        "storage.cache": config.output / "cache",
        "train.checkpoint_seconds": 1,
        "resources.workers": 2,
    }
    assert config_digest(load_config(None, indifferent)) == config_digest(config)
    assert config_digest(load_config(None, {"train.epochs": 3})) != config_digest(config)
