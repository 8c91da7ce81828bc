"""Neighbourhoods sampled around given nodes, on the store's own arrays: no compiled extra is needed."""

# mypy: allow-untyped-decorators, allow-untyped-defs

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from pipeline.store.arrays import CSR

#: Constants of the generator splitmix64.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Neighbourhood:
    """Nodes around some seeds, and the sampled edges between them.

    Attributes:
        nodes: [T] node ids, the seeds first.
        adjacency: [T, T] SciPy matrix of ones; row i holds the sampled neighbours of node i, none for the
            outermost nodes.
    """

    nodes: NDArray[np.int64]
    adjacency: Any


class NeighbourSampler:
    """Samples without replacement; fan-outs of at least the largest degree take every neighbour.

    Args:
        csr: The graph, both directions of every edge.
        fan_outs: Neighbours sampled per node, hop by hop.
    """

    def __init__(self, csr: CSR, fan_outs: Sequence[int]) -> None:
        self._indptr = np.asarray(csr.indptr)
        self._indices = np.asarray(csr.indices)
        self._fan_outs = tuple(fan_outs)
        self._place = np.full(csr.num_nodes, -1, dtype=np.int64)

    def sample(self, seeds: NDArray[np.int64], seed: int) -> Neighbourhood:
        """Nodes within a few hops of `seeds`; the same seed gives the same ones."""
        nodes, rows, columns = [seeds], [], []
        self._place[seeds] = np.arange(seeds.size)
        frontier, start = seeds, 0
        for layer, fan_out in enumerate(self._fan_outs):
            state = np.uint64((seed * 1_000_003 + layer) % 2**64)
            counts = np.minimum(self._indptr[frontier + 1] - self._indptr[frontier], fan_out)
            found = np.empty(int(counts.sum()), dtype=np.int64)
            _sample(self._indptr, self._indices, frontier, fan_out, state, found)
            known = start + frontier.size
            fresh = _number_new(found, self._place, known)
            rows.append(np.repeat(np.arange(start, known), counts))
            columns.append(self._place[found])
            nodes.append(fresh)
            frontier, start = fresh, known
        everyone = np.concatenate(nodes)
        self._place[everyone] = -1
        ends = (np.concatenate(rows), np.concatenate(columns))
        ones = np.ones(ends[0].size, dtype=np.float32)
        adjacency = sparse.csr_matrix((ones, ends), (everyone.size, everyone.size))
        return Neighbourhood(everyone, adjacency)


@njit(cache=True, nogil=True)
def _random(state):
    state = state + _GOLDEN
    mixed = state
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state, mixed ^ (mixed >> np.uint64(31))


@njit(cache=True, nogil=True)
def _sample(indptr, indices, frontier, fan_out, state, found):
    """Write all neighbours of each node, or `fan_out` of them by Floyd's algorithm."""
    write = 0
    for node in frontier:
        first = indptr[node]
        degree = indptr[node + 1] - first
        if degree <= fan_out:
            for place in range(degree):
                found[write] = indices[first + place]
                write += 1
            continue
        begin = write
        for last in range(degree - fan_out, degree):
            state, drawn = _random(state)
            place = int(drawn % np.uint64(last + 1))
            for other in range(begin, write):
                if found[other] == place:
                    place = last
                    break
            found[write] = place
            write += 1
        for chosen in range(begin, write):
            found[chosen] = indices[first + found[chosen]]


@njit(cache=True, nogil=True)
def _number_new(found, place, known):
    """Number the nodes that were not seen before, starting at `known`, and return them."""
    fresh = np.empty(found.size, dtype=np.int64)
    count = 0
    for node in found:
        if place[node] < 0:
            place[node] = known + count
            fresh[count] = node
            count += 1
    return fresh[:count].copy()
