"""Trackers that ask for a password: MLflow's own login over HTTP, and a real Postgres."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from jobs import cli
from pipeline.cluster.doctor import check_tracking
from pipeline.comparison.history import select_trainings
from pipeline.comparison.statistics import compare
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_server import HOST, free_port, serve
from pipeline.tracking.mlflow_store import TrackedRun, TrackingStore, tracking_uri
from pipeline.tracking.runs import JOURNALS
from pipeline.training.campaign import Campaign, run_campaign
from pipeline.training.results import read_epochs
from tests.pipeline.conftest import tiny_config

RIGHT, WRONG = "correct-horse-battery", "wrong-horse-battery"
EPOCHS = 3
POSTGRES_ADVICE = "Postgres is not installed; on Debian and Ubuntu: apt-get install postgresql"
DRIVER_ADVICE = "its driver is not installed: pip install 'cocn[postgres]'"


@pytest.fixture(autouse=True)
def _no_login_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)


def train_tiny(store: GraphStore, output: Path, uri: str) -> Campaign:
    config = tiny_config(output, tracking__uri=uri, train__epochs=EPOCHS)
    return run_campaign(config, store, ["sparse"], [0], [0])


def check_runs(store: TrackingStore, campaign: Campaign) -> list[TrackedRun]:
    """A finished parent and a finished child, with every metric once and every artifact."""
    runs = store.read_runs("cocn")
    assert [run.status for run in runs] == ["FINISHED", "FINISHED"]
    (child,) = [run for run in runs if run.parent_id]
    epochs = read_epochs(campaign.trainings[0].checkpoint.parent)
    history = store.read_history(child.run_id, "train_loss")
    assert [(point.step, point.value) for point in history] == [(e.epoch, e.train_loss) for e in epochs]
    found = {item.path for item in store.client.list_artifacts(child.run_id)}
    assert found == {"checkpoint", "config.yaml", "evaluation.json", "model", "model_card.md"}
    (row,) = compare(select_trainings(store, "cocn")).rows
    assert row.mean == campaign.trainings[0].test_metric
    return runs


def files_with(words: tuple[str, ...], directory: Path) -> list[Path]:
    paths = [path for path in directory.rglob("*") if path.is_file()]
    return [path for path in paths if any(word.encode() in path.read_bytes() for word in words)]


def run_cocn(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(list(words))
    return int(caught.value.code or 0)


def test_a_server_with_a_login(
    tiny_store: GraphStore,
    tmp_path: Path,
    tracking_database: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if find_spec("flask_wtf") is None:
        pytest.skip("MLflow's login is not installed: pip install 'mlflow[auth]'")
    place, output = tmp_path / "server", tmp_path / "runs"
    place.mkdir()
    shutil.copy(tracking_database, place / "mlflow.db")
    settings = place / "login.ini"
    settings.write_text(
        f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{place / 'login.db'}\n"
        "admin_username = ada\nauth_cache_ttl_seconds = 60\n"
        "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n"
    )
    monkeypatch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(settings))
    monkeypatch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", RIGHT)
    monkeypatch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "a key for a test")
    port = free_port()
    address = f"http://{HOST}:{port}"
    with serve(f"sqlite:///{place / 'mlflow.db'}", port, place / "artifacts", ["--app-name", "basic-auth"]):
        # Training does not mind that it is refused, and says so once.
        campaign = train_tiny(tiny_store, output, f"http://ada:{WRONG}@{HOST}:{port}")
        assert campaign.trainings[0].epochs == EPOCHS
        assert caplog.text.count("the tracker does not answer") == 1
        assert len(list((output / JOURNALS).glob("*.jsonl"))) == 3
        assert files_with((RIGHT, WRONG), output) == []

        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert check_tracking(output).status == "problem"
        assert run_cocn("track", "sync", "--output", str(output), "--json") == 1
        assert json.loads(capsys.readouterr().out)["waiting"] == 3
        assert run_cocn("compare", "--tracking-uri", f"http://ada:{WRONG}@{HOST}:{port}", "--debug") == 2
        assert WRONG not in capsys.readouterr().err

        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", RIGHT)
        assert check_tracking(output).status == "ok"
        assert run_cocn("track", "sync", "--output", str(output), "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"sent": 3, "waiting": 0, "in_use": 0, "reason": ""}
        check_runs(TrackingStore(address), campaign)

        # The same through a password in the address.
        monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
        monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
        again = tmp_path / "again"
        train_tiny(tiny_store, again, f"http://ada:{RIGHT}@{HOST}:{port}")
        assert list((again / JOURNALS).iterdir()) == []
        statuses = [
            run.status for run in TrackingStore(f"http://ada:{RIGHT}@{HOST}:{port}").read_runs("cocn")
        ]
        assert statuses == ["FINISHED"] * 4
    assert files_with((RIGHT, WRONG), tmp_path) == []
    assert RIGHT not in caplog.text
    assert WRONG not in caplog.text


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[str]:
    """Address of a database on loopback that asks for a password."""
    programs = [shutil.which(name, path=_postgres_path()) for name in ("initdb", "pg_ctl")]
    if None in programs:
        pytest.skip(POSTGRES_ADVICE)
    if find_spec("psycopg") is None:
        pytest.skip(DRIVER_ADVICE)
    initdb, control = map(str, programs)
    place = tmp_path / "postgres"
    place.mkdir()
    # Postgres refuses to run as root, and its own user must get to its files.
    other: dict[str, object] = {}
    if os.geteuid() == 0:
        other = {"user": "postgres", "group": "postgres", "extra_groups": []}
        shutil.chown(place, "postgres", "postgres")
        for parent in place.parents:
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o001)
    password, data, port = tmp_path / "password", place / "data", free_port()
    password.write_text(RIGHT)
    password.chmod(0o644)

    def call(*words: str) -> None:
        subprocess.run(words, cwd=place, check=True, stdout=subprocess.DEVNULL, timeout=60, **other)  # type: ignore[call-overload]

    call(initdb, "-D", str(data), "-U", "ada", "-A", "scram-sha-256", f"--pwfile={password}", "--no-sync")
    options = f"-c listen_addresses={HOST} -c port={port} -c unix_socket_directories= -c fsync=off"
    call(control, "-D", str(data), "-l", str(place / "log"), "-w", "-o", options, "start")
    try:
        yield f"postgresql://ada:{RIGHT}@{HOST}:{port}/postgres"
    finally:
        call(control, "-D", str(data), "-m", "immediate", "stop")
        password.unlink()


def _postgres_path() -> str:
    """Debian keeps a server's programs outside the PATH."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])


def test_a_postgres(
    postgres: str,
    tiny_store: GraphStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "runs"
    campaign = train_tiny(tiny_store, output, postgres.replace(RIGHT, WRONG))
    assert caplog.text.count("the tracker does not answer") == 1
    assert len(list((output / JOURNALS).glob("*.jsonl"))) == 3

    monkeypatch.setenv("PGPASSWORD", RIGHT)
    assert run_cocn("track", "sync", "--output", str(output), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"sent": 3, "waiting": 0, "in_use": 0, "reason": ""}
    monkeypatch.delenv("PGPASSWORD")
    check_runs(TrackingStore(postgres), campaign)
    assert run_cocn("track", "sync", "--output", str(output), "--json") == 0

    assert run_cocn("compare", "--tracking-uri", postgres.replace(RIGHT, WRONG)) == 1
    shown = capsys.readouterr()
    assert files_with((RIGHT, WRONG), output) == []
    for password in (RIGHT, WRONG):
        assert password not in caplog.text + shown.out + shown.err


def test_a_driver_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UserError, match=r"pip install 'cocn\[postgres\]'"):
        tracking_uri(f"postgresql://ada:{RIGHT}@{HOST}:9/postgres", tmp_path)
