"""Bit-parallel breadth-first search: 512 sources share one sweep over the graph.

A node holds one bit per source in eight 64-bit words, which is one cache line. On an undirected graph a node
is reached at level k by as many sources as it has nodes at k hops, so the distance profile of *every* node
grows by the number of bits it gains: nothing needs to be kept per source.

Legend: n nodes, W words per node, K counted levels.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from pipeline.store.arrays import CSR, Ids

_Array = TypeVar("_Array", bound=NDArray[Any])

_WORDS = 8
MAX_SOURCES = 64 * _WORDS
NO_LIMIT = np.iinfo(np.int32).max
_CACHE_LINE = 64
# Reading the neighbours of all nodes pays off once the frontier has this share of the edges.
_PULL_SHARE = 2
BYTES_IN_ROW = 8 * _WORDS


@dataclass(frozen=True)
class Sums:
    """What sweeps add up at every node; arrays of length zero are skipped.

    Shapes:
        counts: [K, n] int32, sources that reach the node at 1, 2, …, K hops.
        moments: [3, n] int64, the number of those that reach it at all and the sums of their hops and of
            their squared hops; or [0, n].
        weighted: [2, n] int64, the sums of the weights, and of weight times hops, of those that reach it;
            or [0, n].
    """

    counts: NDArray[np.int32]
    moments: NDArray[np.int64]
    weighted: NDArray[np.int64]

    @classmethod
    def zeros(cls, num_nodes: int, levels: int, *, moments: bool = False, weighted: bool = False) -> "Sums":
        return cls(
            counts=np.zeros((levels, num_nodes), dtype=np.int32),
            moments=np.zeros((3 if moments else 0, num_nodes), dtype=np.int64),
            weighted=np.zeros((2 if weighted else 0, num_nodes), dtype=np.int64),
        )

    def add(self, other: "Sums") -> None:
        """Add the sums of other sources; all are integers, so the order never matters."""
        self.counts[...] += other.counts
        self.moments[...] += other.moments
        self.weighted[...] += other.weighted


class Searcher:
    """Sweeps over one graph, with memory allocated once.

    Args:
        csr: The graph, both directions of every edge.
    """

    def __init__(self, csr: CSR) -> None:
        # numba compiles separately for writable and read-only arrays; Ray hands out the latter, so the graph
        # is always made read-only.
        self._indptr, self._indices = _read_only(csr.indptr), _read_only(csr.indices)
        self._rows = [_aligned_rows(csr.num_nodes) for _ in range(3)]
        self._lists = np.empty((3, csr.num_nodes), dtype=np.int32)
        self._gained = np.empty(csr.num_nodes, dtype=np.int32)
        self._flags = np.zeros((2, csr.num_nodes), dtype=np.uint8)

    def sweep(
        self,
        sources: Ids,
        depth: int,
        sums: Sums,
        weights: NDArray[np.int64] | None = None,
    ) -> int:
        """Search from up to 512 sources at once and add the results to `sums`.

        Args:
            sources: Distinct nodes.
            depth: Hops after which the search ends; `NO_LIMIT` continues until nothing new is found.
            sums: Where the results go.
            weights: One number per source, summed in `sums.weighted`.

        Returns:
            The number of the last level at which anything was found.
        """
        if not 0 < len(sources) <= MAX_SOURCES:
            raise ValueError(f"Expected 'sources' to be 1 to {MAX_SOURCES} nodes (got {len(sources)})")
        table = np.zeros((0, 256), dtype=np.int64) if weights is None else _byte_sums(weights)
        visited, frontier, found = self._rows
        return int(
            _sweep(
                self._indptr,
                self._indices,
                _read_only(sources),
                depth,
                visited,
                frontier,
                found,
                self._lists,
                self._gained,
                self._flags,
                sums.counts,
                sums.moments,
                table,
                sums.weighted,
            )
        )


def hop_distances(csr: CSR, source: int) -> NDArray[np.int32]:
    """Hops from one node to every other; −1 where there is no path."""
    hops = np.full(csr.num_nodes, -1, dtype=np.int32)
    _search(
        _read_only(csr.indptr), _read_only(csr.indices), source, hops, np.empty(csr.num_nodes, dtype=np.int32)
    )
    return hops


def _read_only(array: _Array) -> _Array:
    """A read-only view of `array`."""
    view = array.view()
    view.flags.writeable = False
    return view


def _aligned_rows(num_nodes: int) -> NDArray[np.uint64]:
    """Zeros [n, W] whose rows are cache lines: a row that straddles two costs twice as much."""
    raw = np.zeros(num_nodes * BYTES_IN_ROW + _CACHE_LINE, dtype=np.uint8)
    start = -raw.ctypes.data % _CACHE_LINE
    return raw[start : start + num_nodes * BYTES_IN_ROW].view(np.uint64).reshape(num_nodes, _WORDS)


def _byte_sums(weights: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the weights of every subset of 8 neighbouring sources, [8 W, 256]."""
    padded = np.zeros(MAX_SOURCES, dtype=np.int64)
    padded[: len(weights)] = weights
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    return np.ascontiguousarray(padded.reshape(-1, 8) @ bits.T)


@intrinsic
def _count_bits(context, word):
    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@njit(cache=True, nogil=True)
def _sweep(
    indptr,
    indices,
    sources,
    depth,
    visited,
    frontier,
    found,
    lists,
    gained,
    flags,
    counts,
    moments,
    table,
    weighted,
):
    active, reached, touched = lists[0], lists[1], lists[2]
    queued, seen = flags[0], flags[1]
    full = _start(sources, visited, frontier, active)
    num_active = sources.size
    num_touched = _remember(active, num_active, seen, touched, 0)
    level = 0
    while num_active > 0 and level < depth:
        if _count_edges(indptr, active, num_active) * _PULL_SHARE > indices.size:
            num_reached = _pull(indptr, indices, full, visited, frontier, found, reached, gained)
        else:
            num_reached = _push(
                indptr, indices, active, num_active, visited, frontier, found, reached, gained, queued
            )
        _clear(frontier, active, num_active)
        if num_reached > 0:
            level += 1
            if level <= counts.shape[0]:
                _add_counts(reached, gained, num_reached, counts[level - 1])
            if moments.shape[0] > 0:
                _add_moments(reached, gained, num_reached, level, moments)
            if table.shape[0] > 0:
                _add_weights(found, reached, num_reached, level, table, weighted)
        num_touched = _remember(reached, num_reached, seen, touched, num_touched)
        frontier, found = found, frontier
        active, reached = reached, active
        num_active = num_reached
    _clear(frontier, active, num_active)
    _clear(visited, touched, num_touched)
    for place in range(num_touched):
        seen[touched[place]] = 0
    return level


@njit(cache=True, nogil=True)
def _start(sources, visited, frontier, active):
    """Give every source its bit; returns the words in which all bits are set."""
    full = np.zeros(_WORDS, dtype=np.uint64)
    for place in range(sources.size):
        bit = np.uint64(1) << np.uint64(place & 63)
        full[place >> 6] |= bit
        visited[sources[place], place >> 6] |= bit
        frontier[sources[place], place >> 6] |= bit
        active[place] = sources[place]
    return full


@njit(cache=True, nogil=True)
def _count_edges(indptr, nodes, num_nodes):
    total = 0
    for place in range(num_nodes):
        total += indptr[nodes[place] + 1] - indptr[nodes[place]]
    return total


@njit(cache=True, nogil=True)
def _remember(nodes, num_nodes, seen, touched, num_touched):
    """List the nodes touched by a sweep, each once: clearing those is cheaper than clearing all."""
    for place in range(num_nodes):
        node = nodes[place]
        if seen[node] == 0:
            seen[node] = 1
            touched[num_touched] = node
            num_touched += 1
    return num_touched


@njit(cache=True, nogil=True)
def _pull(indptr, indices, full, visited, frontier, found, reached, gained):
    """One level by reading the neighbours of every node that some source has not reached yet."""
    num_reached = 0
    for node in range(indptr.size - 1):
        missing = np.uint64(0)
        for word in range(_WORDS):
            missing |= full[word] & ~visited[node, word]
        if missing == 0:
            continue
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            for word in range(_WORDS):
                found[node, word] |= frontier[other, word]
        bits = _settle(node, visited, found)
        if bits > 0:
            reached[num_reached] = node
            gained[num_reached] = bits
            num_reached += 1
    return num_reached


@njit(cache=True, nogil=True)
def _push(indptr, indices, active, num_active, visited, frontier, found, reached, gained, queued):
    """One level by writing to the neighbours of the nodes that gained bits."""
    num_queued = 0
    for place in range(num_active):
        node = active[place]
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if queued[other] == 0:
                queued[other] = 1
                reached[num_queued] = other
                num_queued += 1
            for word in range(_WORDS):
                found[other, word] |= frontier[node, word]
    num_reached = 0
    for place in range(num_queued):
        node = reached[place]
        queued[node] = 0
        bits = _settle(node, visited, found)
        if bits > 0:
            reached[num_reached] = node
            gained[num_reached] = bits
            num_reached += 1
    return num_reached


@njit(cache=True, nogil=True)
def _settle(node, visited, found):
    """Keep only the new bits of a node, mark them as visited and count them."""
    bits = np.uint64(0)
    for word in range(_WORDS):
        fresh = found[node, word] & ~visited[node, word]
        found[node, word] = fresh
        visited[node, word] |= fresh
        bits += _count_bits(fresh)  # type: ignore[call-arg]
    return bits


@njit(cache=True, nogil=True)
def _clear(rows, nodes, num_nodes):
    for place in range(num_nodes):
        for word in range(_WORDS):
            rows[nodes[place], word] = 0


@njit(cache=True, nogil=True)
def _add_counts(reached, gained, num_reached, column):
    for place in range(num_reached):
        column[reached[place]] += gained[place]


@njit(cache=True, nogil=True)
def _add_moments(reached, gained, num_reached, level, moments):
    for place in range(num_reached):
        node, bits = reached[place], np.int64(gained[place])
        moments[0, node] += bits
        moments[1, node] += bits * level
        moments[2, node] += bits * level * level


@njit(cache=True, nogil=True)
def _add_weights(found, reached, num_reached, level, table, weighted):
    for place in range(num_reached):
        node = reached[place]
        total = np.int64(0)
        for word in range(_WORDS):
            bits = found[node, word]
            if bits != 0:
                for byte in range(8):
                    total += table[8 * word + byte, (bits >> np.uint64(8 * byte)) & np.uint64(255)]
        weighted[0, node] += total
        weighted[1, node] += total * level


@njit(cache=True, nogil=True)
def _search(indptr, indices, source, hops, queue):
    hops[source] = 0
    queue[0] = source
    head, tail = 0, 1
    while head < tail:
        node = queue[head]
        head += 1
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if hops[other] < 0:
                hops[other] = hops[node] + 1
                queue[tail] = other
                tail += 1
