"""networkit behind our arrays."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.ingest.networkit_graphs import networkit_graph, read_networkit, search_distances
from pipeline.runtime.errors import UserError
from pipeline.store.cleaning import clean_edges


def test_distances_on_a_path_with_a_lone_node() -> None:
    csr, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 5)
    assert search_distances(networkit_graph(csr), 0).tolist() == [0, 1, 2, 3, -1]


def test_metis_file(tmp_path: Path) -> None:
    path = tmp_path / "x.metis"
    path.write_text("4 3\n2\n1 3\n2 4\n3\n")
    num_nodes, (rows, columns) = read_networkit(path, "metis")
    csr, _ = clean_edges(rows, columns, num_nodes)
    assert num_nodes == 4
    assert csr.indices.tolist() == [1, 0, 2, 1, 3, 2]


def test_broken_metis_file(tmp_path: Path) -> None:
    path = tmp_path / "x.metis"
    path.write_text("not a graph\n")
    with pytest.raises(UserError, match=r"x\.metis"):
        read_networkit(path, "metis")
