"""A real MLflow server on loopback: runs, an outage in the middle, and the comparison read back."""

import re
import shutil
import statistics
import urllib.request
from pathlib import Path

import pytest

from pipeline.comparison.history import select_trainings
from pipeline.comparison.statistics import compare
from pipeline.config.loading import load_config
from pipeline.runtime.errors import UserError
from pipeline.tracking import run_logger as tracker_module
from pipeline.tracking.mlflow_server import free_port, serve
from pipeline.tracking.mlflow_store import TrackingStore, existing_store, tracking_uri
from pipeline.tracking.run_logger import Tracker
from pipeline.tracking.runs import JOURNALS, start_child, start_parent, sync

SCORES = {"sparse": (0.80, 0.82), "segment": (0.90, 0.93)}


def test_an_outage_in_the_middle_leaves_one_copy_of_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracking_database: Path
) -> None:
    shutil.copy(tracking_database, tmp_path / "server.db")
    monkeypatch.setattr(tracker_module, "SEND_INTERVAL_SECONDS", 0.05)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    port = free_port()
    database, artifacts = f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "artifacts"
    config = load_config(None, {"output": tmp_path / "runs", "tracking.uri": f"http://127.0.0.1:{port}"})
    with serve(database, port, artifacts) as server:
        parent = start_parent("test", config)
        children = [
            (start_child(parent, config, model=m, dataset="d", seed=0, split=s, metric="roc_auc"), score)
            for m, scores in SCORES.items()
            for s, score in enumerate(scores)
        ]
        trackers = [Tracker(child.reference) for child, _ in children]
        for step in range(3):
            trackers[0].log(step, {"val_metric": step / 10})
        assert trackers[0].flush()
        with urllib.request.urlopen(server.address, timeout=10) as page:  # noqa: S310 - our own server
            assert b"MLflow" in page.read()
    for step in range(3, 6):
        trackers[0].log(step, {"val_metric": step / 10})
    assert not trackers[0].flush()
    for tracker in trackers:
        tracker.close()
    for child, score in children:
        child.log(0, {"test_metric": score, "train_seconds": 2.0})
        child.finish()
    parent.finish()
    assert list((tmp_path / "runs" / JOURNALS).iterdir()) != []

    with serve(database, port, artifacts):
        result = sync(tmp_path / "runs" / JOURNALS)
        assert (result.waiting, result.in_use, result.reason) == (0, 0, "")
        assert sync(tmp_path / "runs" / JOURNALS).sent == 0
    assert list((tmp_path / "runs" / JOURNALS).iterdir()) == []

    store = TrackingStore(database)
    runs = store.read_runs("cocn")
    assert [run.status for run in runs] == ["FINISHED"] * 5
    history = store.read_history(str(children[0][0].run_id), "val_metric")
    assert [(point.step, point.value) for point in history] == [(step, step / 10) for step in range(6)]
    rows = {row.model: row for row in compare(select_trainings(store, "cocn")).rows}
    for model, scores in SCORES.items():
        assert rows[model].mean == pytest.approx(statistics.fmean(scores))
        assert rows[model].std == pytest.approx(statistics.stdev(scores))
    assert rows["segment"].train_seconds == 2.0


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=re.escape(f"Expected port {port} on 127.0.0.1 to be free")):
            serve(f"sqlite:///{tmp_path / 'm.db'}", port, tmp_path).__enter__()


def test_the_uri_is_checked_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert tracking_uri(None, tmp_path) == f"sqlite:///{tmp_path}/mlflow.db"
    with pytest.raises(UserError, match=r"Expected 'tracking\.uri' to begin with one of sqlite"):
        tracking_uri("sqlit:///x.db", tmp_path)
    with pytest.raises(UserError, match="train something first"):
        existing_store(None, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "uri", ["postgress://me:hunter2@host/db", "http://me:hun/ter2@host:5000", "http://me:hunter2#@host"]
)
def test_a_uri_that_is_refused_does_not_show_its_password(tmp_path: Path, uri: str) -> None:
    with pytest.raises(UserError, match=r"tracking\.uri") as caught:
        tracking_uri(uri, tmp_path)
    assert "ter2" not in str(caught.value)
