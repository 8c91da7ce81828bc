"""`cocn submit` and `cocn jobs` on a real cluster of three nodes on this machine."""

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from pipeline.storage.files import file_sha256
from pipeline.tracking.mlflow_server import Server
from tests.jobs.conftest import Cocn
from tests.nodes import Nodes
from tests.storage import Storage

pytestmark = pytest.mark.cluster

TIMINGS = "timings.json"


def settings(directory: Path, **sections: dict[str, Any]) -> Path:
    """A configuration file for a small graph, with everything under `directory`."""
    values: dict[str, Any] = {
        "data": {"source": "minesweeper", "side": 16, "store": str(directory / "store")},
        "segments": {"length": 4},
        "model": {"name": "segment", "heads": 2, "hidden_channels": 8, "kernel_size": 2, "dropout": 0.0},
        "train": {"epochs": 2, "batch_size": 64},
        "resources": {"cpus_per_worker": 1},
        "output": str(directory / "runs"),
    }
    for name, section in sections.items():
        values[name] = {**values.get(name, {}), **section}
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "run.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def contents(store: Path) -> dict[str, str]:
    """Digests of a store's files; times differ from run to run."""
    files = [path for path in store.rglob("*") if path.is_file() and path.name != TIMINGS]
    return {str(path.relative_to(store)): file_sha256(path) for path in files if path.name[0] != "."}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """The same graph, preprocessed and trained on one machine without a cluster."""
    from jobs.preprocess import main as preprocess
    from jobs.train import main as train

    directory = tmp_path_factory.mktemp("alone")
    config = settings(directory)
    assert preprocess([str(config)]) == 0
    assert train([str(config)]) == 0
    return directory


def job_names(nodes: Nodes) -> list[str]:
    request = urllib.request.Request(  # noqa: S310 - our own cluster
        f"{nodes.dashboard}/api/jobs/", headers={"Authorization": f"Bearer {nodes.token}"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        names = [job["submission_id"] or "" for job in json.load(answer)]
    return [name for name in names if name and not name.startswith("probe-")]


def test_mistakes_are_one_line_and_nothing_is_uploaded(cocn: Cocn, ray_nodes: Nodes, tmp_path: Path) -> None:
    good = settings(tmp_path)
    typo = tmp_path / "typo.yaml"
    typo.write_text("train: {epoch: 3}")
    science = tmp_path / "science.yaml"
    science.write_text("model: {heads: 4}")
    before = job_names(ray_nodes)
    cases = [
        (("train", typo), {}, "unknown key 'train.epoch'; did you mean 'train.epochs'?"),
        (("train", good), {}, f"(got nothing at '{tmp_path}/store'): cocn submit preprocess creates it"),
        (("train", good, "--set", "output=runs"), {}, "Expected 'output' to be an absolute path"),
        (("train", good, "--set", "tracking.uri=http://me:pw@h:5000"), {}, "to hold no password (got one)"),
        (("train", good, "--cluster", science), {}, "science goes to the other file"),
        (
            ("preprocess", good),
            {"RAY_AUTH_TOKEN": "", "HOME": str(tmp_path)},
            "(got none): set RAY_AUTH_TOKEN",
        ),
        (("preprocess", good), {"RAY_AUTH_TOKEN": "0" * 64}, "(got another): set RAY_AUTH_TOKEN"),
    ]
    for words, environment, line in cases:
        done = cocn("submit", *words, **environment)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert line in done.stderr
        assert done.stderr.count("\n") == 1
    assert job_names(ray_nodes) == before


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("http://127.0.0.1:1", "Expected a Ray cluster at 'http://127.0.0.1:1' (got: Connection refused)"),
        ("ray://127.0.0.1:10001", "to be the http address of a Ray dashboard"),
    ],
)
def test_a_wrong_address_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], address: str, line: str
) -> None:
    from jobs import cli

    with pytest.raises(SystemExit) as caught:
        cli.main(["submit", "train", str(settings(tmp_path)), "--address", address])
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert line in captured.err
    assert captured.err.count("\n") == 1


def test_jobs_across_nodes_equal_one_machine(
    cocn: Cocn, ray_nodes: Nodes, reference: Path, mlflow: Server, tmp_path: Path
) -> None:
    from pipeline.training.results import read_epochs

    config = settings(tmp_path, tracking={"uri": mlflow.address}, resources={"workers": 2})
    done = cocn("submit", "preprocess", config, "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1])["store"] == str(tmp_path / "store")

    done = cocn("submit", "train", config, "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    page = re.escape(mlflow.address) + r"/#/experiments/\d+/runs/[0-9a-f]{32}"
    assert re.search(f"MLflow run: {page}", done.stdout)
    assert contents(tmp_path / "store") == contents(reference / "store")

    [alone], [together] = (
        [read_epochs(path) for path in (directory / "runs/trainings").iterdir() if path.name[0] != "."]
        for directory in (reference, tmp_path)
    )
    assert [e.train_loss for e in together] == pytest.approx([e.train_loss for e in alone], abs=1e-5)
    assert [e.val_metric for e in together] == pytest.approx([e.val_metric for e in alone], abs=1e-5)

    listed = json.loads(cocn("jobs", "list", "--json").stdout)["jobs"]
    assert [job["stage"] for job in listed[:2]] == ["train", "preprocess"]
    assert "probe" not in {job["stage"] for job in listed}
    for job in listed[:2]:
        told = json.dumps(job) + cocn("jobs", "logs", job["id"]).stdout
        assert ray_nodes.token not in told
        assert job["metadata"]["cocn.data"] == "minesweeper"


def test_follow_exits_with_the_jobs_code(cocn: Cocn, tmp_path: Path) -> None:
    done = cocn("submit", "preprocess", settings(tmp_path), "--follow", "--set", "data.source=minesweper")
    assert done.returncode == 2
    assert "jobs.preprocess: Expected" in done.stdout


def test_a_job_is_stopped_and_an_unknown_one_is_one_line(cocn: Cocn, tmp_path: Path) -> None:
    slow = settings(tmp_path, data={"side": 300}, positions={"depth": "full", "landmarks": 5000})
    name = json.loads(cocn("submit", "preprocess", slow, "--json").stdout)["id"]
    stopped = json.loads(cocn("jobs", "stop", name, "--json").stdout)
    assert stopped["status"] == "STOPPED"
    assert json.loads(cocn("jobs", "status", name, "--json").stdout)["id"] == name
    unknown = cocn("jobs", "status", "train-nothing")
    assert unknown.returncode == 2
    assert "(got 'train-nothing'): cocn jobs list shows them" in unknown.stderr


def test_doctor_asks_every_node(cocn: Cocn, tmp_path: Path) -> None:
    done = cocn("doctor", "--output", tmp_path / "runs", "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    checks = {check["name"]: (check["status"], check["detail"]) for check in report["checks"]}
    assert set(checks) == {"cluster", "authentication", "versions", "gpus", "storage", "mlflow"}
    assert {status for status, _ in checks.values()} == {"ok"}, checks
    assert checks["versions"][1] == "the same on 3 nodes and here"
    assert list((tmp_path / "runs").iterdir()) == []


def test_doctor_asks_every_node_for_an_object_store(cocn: Cocn, storage: Storage, tmp_path: Path) -> None:
    done = cocn("doctor", "--output", tmp_path, "--storage", storage.uri("runs"), "--json")
    report = json.loads(done.stdout.splitlines()[-1])
    [check] = [check for check in report["checks"] if check["name"] == "storage"]
    assert check["detail"] == f"{storage.uri('runs')} is shared and writable on 3 nodes", report
    assert storage.names("runs") == set()


def test_everything_listens_on_loopback(ray_nodes: Nodes, mlflow: Server) -> None:
    for process in (ray_nodes.process, mlflow.process):
        family = psutil.Process(process.pid)
        sockets = [
            connection.laddr.ip
            for member in (family, *family.children(recursive=True))
            for connection in member.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert sockets
        assert {ip.removeprefix("::ffff:") for ip in sockets} <= {"127.0.0.1", "::1"}
