"""Our wrapper of networkit."""

import numpy as np

from pipeline.ingest.networkit_graphs import networkit_graph, search_distances
from pipeline.store.cleaning import clean_edges


def test_distances_on_a_path_with_a_lone_node() -> None:
    csr, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 5)
    assert search_distances(networkit_graph(csr), 0).tolist() == [0, 1, 2, 3, -1]
