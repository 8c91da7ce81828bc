"""A cluster of three nodes, shared by the tests that need one."""

from collections.abc import Iterator

import pytest

from tests.nodes import Nodes, start_nodes


@pytest.fixture(scope="session")
def ray_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """A head and two nodes with one CPU each, on loopback and with a token, started once."""
    with start_nodes(2, tmp_path_factory.mktemp("nodes") / "cluster.log") as nodes:
        yield nodes
