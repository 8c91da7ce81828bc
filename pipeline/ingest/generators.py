"""Graphs generated from a seed: the minesweeper benchmark at any size, and power-law graphs to measure on."""

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.networkit_graphs import Generator, power_law_graph
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.cleaning import clean_edges
from pipeline.store.splits import random_splits

_MINE_SHARE = 0.2
_UNKNOWN_SHARE = 0.5
# Column 0 flags an unknown count; columns 1…6 are the one-hot counts 0, 1, 2, 3, 4, and 5 or more.
_MINESWEEPER_FEATURES = 7
_LARGEST_COUNT = 5


def minesweeper(side: int = 100, *, seed: int = 0, num_splits: int = 10) -> GraphArrays:
    """The minesweeper benchmark (Platonov et al., 2023), generated from a seed.

    A cell of a side × side board is a node, connected to the up to eight cells around it. One cell in five
    hides a mine, the class to predict. A cell's feature is the number of mines around it, one-hot, or, for
    every second cell, only the flag "unknown". The layout of the published files, their counts, shares and
    stratified 50/25/25 splits are kept; at side 100 there are 10,000 nodes and 39,402 edges.

    Args:
        side: Side of the board.
        seed: Seed of mines, unknown cells and splits.
        num_splits: Number of splits.
    """
    if side < 2:
        raise ValueError(f"Expected 'side' to be at least 2 (got {side})")
    num_nodes = side * side
    mines_seed, unknown_seed, split_seed = np.random.SeedSequence(seed).spawn(3)
    csr = board(side)
    mines = _random_subset(num_nodes, _MINE_SHARE, mines_seed)
    unknown = _random_subset(num_nodes, _UNKNOWN_SHARE, unknown_seed)
    counts = np.add.reduceat(mines[csr.indices].astype(np.int64), csr.indptr[:-1])
    features = np.zeros((num_nodes, _MINESWEEPER_FEATURES), dtype=np.float32)
    column = np.where(unknown, 0, 1 + np.minimum(counts, _LARGEST_COUNT))
    features[np.arange(num_nodes), column] = 1
    labels = mines.astype(np.int64)
    return GraphArrays(
        name="minesweeper",
        csr=csr,
        features=features,
        labels=labels,
        splits=random_splits(labels, num_splits=num_splits, seed=_number(split_seed)),
        num_classes=2,
    )


def board(side: int) -> CSR:
    """The side × side grid in which each cell is connected to the up to eight cells around it."""
    cells = np.arange(side * side).reshape(side, side)
    pairs = [
        (cells[:, :-1], cells[:, 1:]),
        (cells[:-1, :], cells[1:, :]),
        (cells[:-1, :-1], cells[1:, 1:]),
        (cells[:-1, 1:], cells[1:, :-1]),
    ]
    sources = np.concatenate([first.reshape(-1) for first, _ in pairs])
    targets = np.concatenate([second.reshape(-1) for _, second in pairs])
    return clean_edges(sources, targets, side * side)[0]


def power_law(
    num_nodes: int,
    *,
    mean_degree: float = 4.67,
    seed: int = 0,
    num_features: int = 16,
    num_classes: int = 4,
    generator: Generator = "hyperbolic",
) -> GraphArrays:
    """A power-law graph whose classes follow the graph and appear, with noise, in the features.

    Args:
        num_nodes: Size of the graph; 421,961 is that of genius.
        mean_degree: Target mean degree.
        seed: Seed of the graph, its features and its split.
        num_features: Width of the features.
        num_classes: Classes of equal size.
        generator: Model that generates the graph.
    """
    csr = power_law_graph(num_nodes, mean_degree=mean_degree, seed=seed, generator=generator)
    draw = np.random.default_rng([seed, num_nodes])
    hidden = _mean_with_neighbours(csr, draw.normal(size=num_nodes))
    labels = np.empty(num_nodes, dtype=np.int64)
    labels[np.argsort(hidden, kind="stable")] = np.arange(num_nodes) * num_classes // num_nodes
    centres = draw.normal(size=(num_classes, num_features)).astype(np.float32)
    noise = draw.normal(scale=2.0, size=(num_nodes, num_features)).astype(np.float32)
    return GraphArrays(
        name="power-law",
        csr=csr,
        features=centres[labels] + noise,
        labels=labels,
        splits=random_splits(labels, num_splits=1, seed=seed),
        num_classes=num_classes,
    )


def _mean_with_neighbours(csr: CSR, values: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.concatenate([[0.0], np.cumsum(values[csr.indices])])
    means: NDArray[np.float64] = (values + np.diff(sums[csr.indptr])) / (1 + csr.degrees())
    return means


def _random_subset(size: int, share: float, seed: np.random.SeedSequence) -> NDArray[np.bool_]:
    chosen = np.zeros(size, dtype=np.bool_)
    chosen[np.random.default_rng(seed).permutation(size)[: round(size * share)]] = True
    return chosen


def _number(seed: np.random.SeedSequence) -> int:
    return int(seed.generate_state(1)[0])
