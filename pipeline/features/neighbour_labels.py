"""Classes of the neighbours that are training nodes: the block `labels-S` of split S.

A node never reads its own class. For each direction the block has the share of each class among the
neighbours whose class is known, and the share of neighbours whose class is known. For two hops it has the
same over paths that do not return to the node, where each neighbour has equal weight whatever its degree:

    s_i = Σ_{j ∈ N(i)} 1/(d_j − 1) Σ_{l ∈ N(j), l ≠ i} y_l

In a directed graph such paths also lead over nodes that both point to (l points to what i points to), and
over nodes that point to both.

Legend: n nodes, C classes.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from functools import partial

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.features.averages import Direction, neighbours
from pipeline.features.blocks import BlockParameters, row_ranges, write_block, write_rows
from pipeline.store.arrays import CSR, Integers
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

#: With more classes the block would be wider than the features of most graphs.
MOST_CLASSES = 512
#: Minimum weight of two-hop paths to a known class for them to count.
LEAST_WEIGHT = 1e-3


def block_name(split: int) -> str:
    """Name of the block of a split."""
    return f"labels-{split}"


def has_labels(store: GraphStore) -> bool:
    """Whether the classes of neighbours can be a block."""
    few = 1 < store.manifest.num_classes <= MOST_CLASSES
    return few and store.num_splits > 0 and store.manifest.answer == "classes"


def write_neighbour_labels(store: GraphStore, split: int, *, replace: bool = False) -> bool:
    """Write the block of a split."""
    parameters = BlockParameters(block=block_name(split))
    return write_block(store, parameters, partial(_fill, store, split), "columns", replace=replace)


def _fill(store: GraphStore, split: int, stage: Stage) -> list[str]:
    known = np.where(store.split(split) == 0, store.labels(), -1)
    csr, classes = store.csr(), store.manifest.num_classes
    undirected = store.undirected_csr()
    directions: tuple[Direction, ...] = ("out", "in", "mean") if csr.ways is not None else ("mean",)
    ranges = row_ranges(store.num_nodes)
    if all(stage.existing(name) for name, _ in ranges):
        return [name for name, _ in ranges]
    graphs = {way: neighbours(csr if way != "mean" else undirected, way) for way in directions}
    # Two hops: there by one direction and back by the other.
    paths: list[tuple[Direction, Direction]] = [("mean", "mean")]
    if csr.ways is not None:
        paths += [("out", "in"), ("in", "out")]
    counts = {back: _count_all(stage, graphs[back], known, classes, back) for _, back in paths}
    for name, (start, stop) in ranges:
        if stage.existing(name):
            continue
        shares = [share_classes(graphs[way], known, classes, start, stop) for way in directions]
        shares += [
            share_second_hop(graphs[there], graphs[back], known, counts[back], start, stop)
            for there, back in paths
        ]
        write_rows(stage, name, np.concatenate(shares, axis=1))
    return [name for name, _ in ranges]


def _count_all(stage: Stage, csr: CSR, known: Integers, classes: int, name: str) -> NDArray[np.float32]:
    """Number of neighbours of each class for every node, in a mapped file: [n, C]."""
    shape = (csr.num_nodes, classes)
    counts = np.memmap(stage.workspace / f"counts-{name}.bin", dtype=np.float32, mode="w+", shape=shape)
    _count(csr.indptr, csr.indices, known, 0, counts)
    return np.asarray(counts)


def share_classes(csr: CSR, known: Integers, classes: int, start: int, stop: int) -> NDArray[np.float32]:
    """Share of each class among neighbours of known class, and the share of those. [rows, C + 1]"""
    counts = np.zeros((stop - start, classes), dtype=np.float32)
    _count(csr.indptr, csr.indices, known, start, counts)
    degrees = np.diff(csr.indptr[start : stop + 1])
    total = counts.sum(1)
    shares = counts / np.maximum(total, 1)[:, None]
    return np.concatenate([shares, (total / np.maximum(degrees, 1))[:, None]], axis=1).astype(np.float32)


def share_second_hop(
    there: CSR, back: CSR, known: Integers, first: NDArray[np.float32], start: int, stop: int
) -> NDArray[np.float32]:
    """The same over paths of two hops that do not return. [rows, C + 1]

    Args:
        there: Neighbours of the first hop.
        back: Neighbours of the second hop.
        known: Class of every training node, −1 for others.
        first: For every node, its second-hop neighbours counted by class.
        start: First row.
        stop: Row after the last.
    """
    sums = np.zeros((stop - start, first.shape[1]), dtype=np.float32)
    _sum_second(there.indptr, there.indices, back.indptr, known, first, start, sums)
    degrees = np.diff(there.indptr[start : stop + 1])
    total = sums.sum(1)
    shares = sums / np.maximum(total, LEAST_WEIGHT)[:, None]
    return np.concatenate([shares, (total / np.maximum(degrees, 1))[:, None]], axis=1).astype(np.float32)


@njit(cache=True, nogil=True)
def _count(indptr, indices, known, start, counts):
    for row in range(counts.shape[0]):
        for column in range(counts.shape[1]):
            counts[row, column] = 0
        for edge in range(indptr[start + row], indptr[start + row + 1]):
            label = known[indices[edge]]
            if label >= 0:
                counts[row, label] += 1


@njit(cache=True, nogil=True)
def _sum_second(indptr, indices, back_indptr, known, first, start, sums):
    for row in range(sums.shape[0]):
        node = start + row
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            paths = back_indptr[other + 1] - back_indptr[other] - 1
            if paths < 1:
                continue
            weight = np.float32(1.0 / paths)
            for column in range(sums.shape[1]):
                # Counts are integers: subtracting the node's own label leaves no rounding error.
                own = np.float32(1) if known[node] == column else np.float32(0)
                sums[row, column] += weight * (first[other, column] - own)
