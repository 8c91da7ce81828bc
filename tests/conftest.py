"""Graphs small enough to check by hand, and the one Ray that all tests share."""

import jobs  # noqa: F401, I001  # First: it sets how threads wait, before torch is loaded.

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.storage import ENVIRONMENT, Storage, serve_storage

Edges = NDArray[np.int64]


@pytest.fixture(autouse=True)
def _own_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the test's own tracker: MLflow writes the last one that was set into the environment."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Ray on loopback with two CPUs and no dashboard, started once per test session."""
    from pipeline.engine.session import local_cluster

    with local_cluster(cpus=2):
        yield


@pytest.fixture(scope="session")
def tracking_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database to copy; MLflow takes many seconds to create its tables."""
    from pipeline.tracking.mlflow_store import TrackingStore

    path = tmp_path_factory.mktemp("tracking") / "mlflow.db"
    assert TrackingStore(f"sqlite:///{path}").client.get_experiment_by_name("none") is None
    return path


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Storage]:
    """An S3 endpoint on loopback, one per module."""
    with serve_storage() as storage:
        yield storage


@pytest.fixture
def storage(endpoint: Storage, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """The endpoint, with its credentials in the environment."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    endpoint.line.restore()  # a test that failed may have left it cut
    return endpoint


def both_directions(pairs: list[tuple[int, int]]) -> Edges:
    """Edge array [2, m] that holds each undirected edge in both directions, sorted by source then target."""
    edges = np.array(pairs + [(v, u) for u, v in pairs], dtype=np.int64).T
    return edges[:, np.lexsort((edges[1], edges[0]))]


@pytest.fixture
def path_graph() -> Edges:
    """0 - 1 - 2 - 3 - 4."""
    return both_directions([(0, 1), (1, 2), (2, 3), (3, 4)])


@pytest.fixture
def cycle_graph() -> Edges:
    """A ring of six nodes."""
    return both_directions([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)])


@pytest.fixture
def star_graph() -> Edges:
    """Node 0 in the middle of four leaves."""
    return both_directions([(0, 1), (0, 2), (0, 3), (0, 4)])


@pytest.fixture
def kite_graph() -> Edges:
    """A triangle 0 1 2 with a tail 2 - 3 - 4 and a lone node 5 (pass n=6)."""
    return both_directions([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
