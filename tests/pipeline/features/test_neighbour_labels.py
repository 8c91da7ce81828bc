"""Classes of neighbours: by brute force over paths, and a node never reads its own class."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.features.blocks import open_block, read_statistics
from pipeline.features.neighbour_labels import write_neighbour_labels
from pipeline.store.graph_store import GraphStore
from tests.pipeline.features.conftest import NUM_CLASSES, NUM_NODES, directed_edges, make_store


def raw_block(store: GraphStore, split: int) -> NDArray[np.float64]:
    write_neighbour_labels(store, split)
    statistics = read_statistics(store, f"labels-{split}")
    return open_block(store, f"labels-{split}") * statistics.deviation + statistics.mean


def shares(weights: NDArray[np.float64], known: NDArray[np.float64], least: float) -> NDArray[np.float64]:
    """Share of each class by the weight of paths, and the total weight of known classes."""
    sums = weights @ known
    return np.asarray(sums / np.maximum(sums.sum(1, keepdims=True), least))


def test_shares_equal_a_sum_over_paths(store: GraphStore) -> None:
    out = directed_edges().astype(np.float64)
    both = np.maximum(out, out.T)
    known = np.eye(NUM_CLASSES)[store.labels()] * (store.split(0) == 0)[:, None]
    expected = [shares(matrix, known, 1) for matrix in (out, out.T, both)]
    for there, back in ((both, both), (out, out.T), (out.T, out)):
        weights = np.zeros((NUM_NODES, NUM_NODES))
        for i in range(NUM_NODES):
            for j in np.flatnonzero(there[i]):
                ends = [end for end in np.flatnonzero(back[j]) if end != i]
                for end in ends:
                    weights[i, end] += 1 / max(int(back[j].sum()) - 1, 1)
        expected.append(shares(weights, known, 1e-3))
    found = raw_block(store, 0).reshape(NUM_NODES, 6, NUM_CLASSES + 1)[:, :, :NUM_CLASSES]
    np.testing.assert_allclose(found, np.stack(expected, axis=1), atol=5e-3)


def test_a_node_never_reads_its_own_class(tmp_path: Path, store: GraphStore) -> None:
    labels = np.array(store.labels())
    node = int(np.flatnonzero((store.split(0) == 0) & (directed_edges().sum(1) > 1))[0])
    labels[node] = (labels[node] + 1) % NUM_CLASSES
    other = make_store(tmp_path / "other", labels=labels)
    before, after = raw_block(store, 0), raw_block(other, 0)
    np.testing.assert_allclose(before[node], after[node], atol=5e-3)
    assert np.abs(before - after).max() > 0.05


def test_other_splits_know_other_classes(store: GraphStore) -> None:
    assert np.abs(raw_block(store, 0) - raw_block(store, 1)).max() > 0.05
