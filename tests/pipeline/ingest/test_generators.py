"""Generated graphs: the minesweeper layout equals the published one, and seeds decide everything."""

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline.ingest.generators import board, minesweeper, power_law
from pipeline.store.cleaning import edge_sources, homophily
from pipeline.store.splits import random_splits, splits_from_masks

DATA_ROOT = Path(os.environ.get("COCN_DATA_ROOT") or Path(__file__).parents[4] / "shared" / "datasets")
PUBLISHED = DATA_ROOT / "heterophilous/minesweeper/raw/minesweeper.npz"


def test_board_of_nine_cells() -> None:
    csr = board(3)
    assert csr.degrees().tolist() == [3, 5, 3, 5, 8, 5, 3, 5, 3]
    assert csr.indices[csr.indptr[0] : csr.indptr[1]].tolist() == [1, 3, 4]


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published minesweeper files are not on this machine")
def test_layout_equals_the_published_one() -> None:
    with np.load(PUBLISHED) as published:
        edges, mines = published["edges"], published["node_labels"]
        features, train = published["node_features"], published["train_masks"]
    graph = minesweeper(100, seed=3)
    csr = graph.csr
    ours = np.stack([edge_sources(csr), csr.indices], axis=1).astype(np.int64)
    ours = ours[ours[:, 0] < ours[:, 1]]
    assert np.array_equal(ours, edges[np.lexsort((edges[:, 1], edges[:, 0]))])
    assert graph.labels.sum() == mines.sum() == 2000
    assert features[:, 0].sum() == graph.features[:, 0].sum() == 5000
    assert graph.splits.shape == train.shape
    for part, size in enumerate((5000, 2500, 2500)):
        assert (graph.splits == part).sum(axis=1).tolist() == [size] * 10
        assert all(graph.labels[row == part].sum() == size // 5 for row in graph.splits)
    # The rule that gives the features of ours must give theirs from their mines.
    counts = np.add.reduceat(mines[csr.indices], csr.indptr[:-1])
    expected = np.where(features[:, 0] == 1, 0, 1 + np.minimum(counts, 5))
    assert np.array_equal(features.argmax(axis=1), expected)
    assert np.abs(graph.features.mean(axis=0) - features.mean(axis=0)).max() < 0.01


def test_features_count_the_mines_around() -> None:
    graph = minesweeper(5, seed=1)
    neighbours = [graph.csr.indices[slice(*graph.csr.indptr[v : v + 2])] for v in range(25)]
    counts = np.array([graph.labels[nodes].sum() for nodes in neighbours])
    known = graph.features[:, 0] == 0
    assert np.array_equal(graph.features.argmax(axis=1)[known], 1 + np.minimum(counts, 5)[known])
    assert graph.features.sum(axis=1).tolist() == [1.0] * 25


def test_seed_decides_the_graph() -> None:
    first, second, other = minesweeper(10, seed=1), minesweeper(10, seed=1), minesweeper(10, seed=2)
    assert np.array_equal(first.features, second.features)
    assert np.array_equal(first.splits, second.splits)
    assert not np.array_equal(first.labels, other.labels)


def test_power_law_graph() -> None:
    first, second = power_law(2000, seed=4), power_law(2000, seed=4)
    assert np.array_equal(first.csr.indices, second.csr.indices)
    assert np.array_equal(first.features, second.features)
    assert 2 < first.csr.degrees().mean() < 9
    assert first.csr.degrees().max() > 40
    assert np.bincount(first.labels).tolist() == [500] * 4
    share = homophily(first.csr, first.labels)
    assert share is not None
    assert share > 0.3


def test_power_law_graph_without_clusters() -> None:
    graph = power_law(500, seed=0, generator="barabasi-albert")
    assert graph.csr.degrees().min() >= 1


def test_splits_keep_class_shares_and_skip_the_unlabelled() -> None:
    labels = np.array([0] * 40 + [1] * 20 + [-1] * 5)
    splits = random_splits(labels, num_splits=3, train=0.5, validation=0.25, seed=0)
    for row in splits:
        assert [(row[:40] == part).sum() for part in range(3)] == [20, 10, 10]
        assert [(row[40:60] == part).sum() for part in range(3)] == [10, 5, 5]
        assert (row[60:] == -1).all()
    assert not np.array_equal(splits[0], splits[1])


def test_splits_without_labels() -> None:
    assert (random_splits(np.full(8, -1), num_splits=1) >= 0).all()


def test_splits_from_masks() -> None:
    train, validation, test = np.eye(4, dtype=bool)[:3]
    assert splits_from_masks(train, validation, test).tolist() == [[0, 1, 2, -1]]
    as_bytes = [mask.astype(np.uint8) for mask in (train, validation, test)]
    assert splits_from_masks(*as_bytes).tolist() == [[0, 1, 2, -1]]  # type: ignore[arg-type]


def test_bad_shares() -> None:
    with pytest.raises(ValueError, match="to be shares of 1"):
        random_splits(np.zeros(4, dtype=np.int64), train=0.9, validation=0.2)
