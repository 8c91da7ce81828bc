"""Coverage: how many of the edges the segments can see.

Legend: n nodes, H heads, b segment length.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.orders.sequences import Sequences
from pipeline.store.arrays import CSR


@dataclass(frozen=True)
class Coverage:
    """Shares of the edges, not counting self-loops.

    Attributes:
        heads: For each head, edges whose ends are less than b places apart on the circle.
        union: For the first 1, 2, … H heads together, edges covered by at least one of them.
        own: For the first 1, 2, … H heads together, entries (v, u) with u in a segment that starts at v.
        chance: Expected union of as many random orders.
    """

    length: int
    heads: tuple[float, ...]
    union: tuple[float, ...]
    own: tuple[float, ...]
    chance: float


def measure_coverage(sequences: Sequences, csr: CSR, length: int) -> Coverage:
    """Walk the edges once and compare the places of their ends in every head."""
    num_heads, num_nodes = sequences.rank.shape
    near, union, own = (np.zeros(num_heads, dtype=np.int64) for _ in range(3))
    ranks = np.ascontiguousarray(sequences.rank.T)
    total = max(1, _count_near(csr.indptr, csr.indices, ranks, length, near, union, own))
    single = min(1.0, 2 * (length - 1) / max(1, num_nodes - 1))
    return Coverage(
        length=length,
        heads=_shares(near, total),
        union=_shares(union, total),
        own=_shares(own, total),
        chance=1 - (1 - single) ** num_heads,
    )


def adjacency_density(rank: NDArray[np.int32], csr: CSR, bins: int) -> NDArray[np.int64]:
    """Entries of the permuted adjacency matrix, counted in bins × bins cells."""
    counts = np.zeros((bins, bins), dtype=np.int64)
    _count_cells(csr.indptr, csr.indices, rank, counts)
    return counts


def _shares(counts: NDArray[np.int64], total: int) -> tuple[float, ...]:
    return tuple((counts / total).tolist())


@njit(cache=True, nogil=True)
def _count_near(indptr, indices, ranks, length, near, union, own):
    size, num_heads = ranks.shape
    total = 0
    for node in range(size):
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if other == node:
                continue
            total += 1
            seen = owned = False
            for head in range(num_heads):
                offset = ranks[other, head] - ranks[node, head]
                if offset < 0:
                    offset += size
                within = offset < length or size - offset < length
                seen |= within
                owned |= offset < length
                near[head] += within
                union[head] += seen
                own[head] += owned
    return total


@njit(cache=True, nogil=True)
def _count_cells(indptr, indices, rank, counts):
    size = rank.size
    bins = counts.shape[0]
    for node in range(size):
        row = np.int64(rank[node]) * bins // size
        for edge in range(indptr[node], indptr[node + 1]):
            counts[row, np.int64(rank[indices[edge]]) * bins // size] += 1
