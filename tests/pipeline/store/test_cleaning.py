"""Cleaning: counts of what was dropped, and the structure that is left."""

import numpy as np

from pipeline.store.arrays import GraphArrays
from pipeline.store.cleaning import (
    clean_edges,
    component_labels,
    describe,
    edge_sources,
    homophily,
    symmetric,
)

SOURCES = np.array([0, 0, 1, 2, 2, 3, 3])
TARGETS = np.array([1, 1, 0, 2, 1, 2, 2])


def test_counts_and_structure() -> None:
    csr, report = clean_edges(SOURCES, TARGETS, 6)
    assert (report.input_edges, report.self_loops, report.duplicates) == (7, 1, 2)
    assert (report.one_way, report.undirected_edges, report.symmetrised) == (2, 3, True)
    assert csr.indptr.tolist() == [0, 1, 3, 5, 6, 6, 6]
    assert csr.indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert csr.indices.dtype == np.int32
    assert edge_sources(csr).tolist() == [0, 1, 1, 2, 2, 3]


def test_directed_is_kept_and_symmetrised_later() -> None:
    csr, report = clean_edges(SOURCES, TARGETS, 6, directed=True)
    assert not report.symmetrised
    assert csr.indices.tolist() == [1, 0, 1, 2]
    assert symmetric(csr).indices.tolist() == [1, 0, 2, 1, 3, 2]


def test_no_edges() -> None:
    csr, report = clean_edges(SOURCES[:0], TARGETS[:0], 3)
    assert csr.indptr.tolist() == [0, 0, 0, 0]
    assert report.undirected_edges == 0
    assert component_labels(csr)[0] == 3


def test_report() -> None:
    csr, edges = clean_edges(SOURCES, TARGETS, 6)
    graph = GraphArrays(
        name="x",
        csr=csr,
        features=np.zeros((6, 2), dtype=np.float32),
        labels=np.array([0, 0, 1, -1, 1, 1]),
        splits=np.array([[0, 0, 1, -1, 2, 2]], dtype=np.int8),
        num_classes=2,
    )
    report = describe(graph, edges)
    assert (report.components, report.largest_component, report.degrees.isolated_nodes) == (3, 4, 2)
    assert (report.class_sizes, report.unlabelled) == ([2, 3], 1)
    assert report.split_sizes == [{"train": 2, "val": 1, "test": 2}]
    assert report.homophily == 0.5


def test_homophily_without_labels() -> None:
    csr, _ = clean_edges(SOURCES, TARGETS, 6)
    assert homophily(csr, np.full(6, -1)) is None
