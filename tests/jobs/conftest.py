"""A cluster of three nodes, a way to call the command line on it, and a tracking server."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.tracking.mlflow_server import Server, free_port, serve
from tests.nodes import Nodes, start_nodes

ROOT = Path(__file__).resolve().parents[2]
Done = subprocess.CompletedProcess[str]
Cocn = Callable[..., Done]


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A head and two nodes with one CPU each, on loopback and with a token, started once."""
    with start_nodes(2, tmp_path_factory.mktemp("nodes") / "cluster.log") as nodes:
        yield nodes


@pytest.fixture
def cocn(ray_nodes: Nodes) -> Cocn:
    def call(*words: object, **environment: str) -> Done:
        command = [sys.executable, "-m", "jobs.cli", *map(str, words), "--address", ray_nodes.dashboard]
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**ray_nodes.environment(), **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


@pytest.fixture(scope="session")
def mlflow(tmp_path_factory: pytest.TempPathFactory, tracking_database: Path) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("server")
    shutil.copy(tracking_database, directory / "mlflow.db")
    with serve(f"sqlite:///{directory / 'mlflow.db'}", free_port(), directory / "artifacts") as server:
        yield server
