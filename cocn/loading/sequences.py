"""Circular node sequences: one ascending order of the nodes per head, ties broken by structure.

Legend: n nodes, m directed edges, H heads.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cocn.loading.csr import CSR

# Colour refinement stops by itself after a few rounds on most graphs; long paths would need n/2.
MAX_REFINEMENT_ROUNDS = 32

# The constants of splitmix64, a bijective mixer of 64-bit words.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Sequences:
    """The circular sequence of every head, as an order and its inverse.

    Shapes:
        order: [H, n] int32, the node at each place of the sequence.
        rank: [H, n] int32, the place of each node; the inverse of `order`.
    """

    order: NDArray[np.int32]
    rank: NDArray[np.int32]

    def __post_init__(self) -> None:
        if self.order.ndim != 2 or self.order.shape != self.rank.shape:
            raise ValueError(
                f"Expected 'order' and 'rank' to have the same shape [H, n] "
                f"(got {self.order.shape} and {self.rank.shape})"
            )

    @property
    def num_heads(self) -> int:
        return int(self.order.shape[0])

    @property
    def num_nodes(self) -> int:
        return int(self.order.shape[1])


def sequence(positions: NDArray[np.floating], csr: CSR) -> Sequences:
    """Order the nodes by position, ascending, once per head.

    Nodes at the same position are ordered by degree, then by the hash that colour refinement gives them
    (it starts from degree and positions and takes in the neighbours' colours until no class splits any more).
    None of this reads a node's id, so relabelling the graph relabels the sequence; only nodes that
    refinement cannot tell apart keep their input order.

    Args:
        positions: One column per head.
        csr: The graph, both directions of every edge.

    Shapes:
        positions: [n, H]

    Raises:
        ValueError: if the positions do not fit the graph or are not finite.
    """
    dense = dense_ranks(positions, csr.num_nodes)
    return place(dense, tie_order(dense, csr))


def dense_ranks(positions: NDArray[np.floating], num_nodes: int) -> NDArray[np.int32]:
    """Number the distinct positions of each head upwards: equal positions share a number. [n, H] → [H, n]"""
    if positions.ndim != 2 or positions.shape[0] != num_nodes:
        raise ValueError(
            f"Expected 'positions' to have a row for each of the {num_nodes} nodes (got {positions.shape})"
        )
    if not np.isfinite(positions).all():
        raise ValueError("Expected 'positions' to be finite (got NaN or infinity)")
    columns = np.ascontiguousarray(positions.T)
    dense = np.empty(columns.shape, dtype=np.int32)
    for column, out in zip(columns, dense, strict=True):
        _number_runs(column, np.argsort(column), out)
    return dense


def tie_order(dense: NDArray[np.int32], csr: CSR) -> NDArray[np.int32]:
    """The order of nodes that share a position: by degree, then refined colour, then id."""
    shared = np.zeros(csr.num_nodes, dtype=np.bool_)
    for row in dense:
        _mark_shared(row, shared)
    nodes = np.flatnonzero(shared)
    colours = refine_colours(dense, csr, nodes)
    first = nodes[np.lexsort((colours[nodes], csr.degrees()[nodes]))]
    # The other nodes share their place with none in any head, so any order will do.
    return np.concatenate([first, np.flatnonzero(~shared)]).astype(np.int32)


def refine_colours(dense: NDArray[np.int32], csr: CSR, nodes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Colour refinement (1-WL) by 64-bit hashes, from degrees and positions, until no class splits.

    Args:
        dense: Numbered positions, [H, n].
        csr: The graph.
        nodes: Nodes to tell apart; refinement also stops once all of them are distinct.
    """
    colours = np.empty(csr.num_nodes, dtype=np.uint64)
    _seed_colours(csr.indptr, dense, colours)
    classes = 0
    for _ in range(MAX_REFINEMENT_ROUNDS):
        if _count_distinct(colours[nodes]) == nodes.size:
            break
        refined = np.empty_like(colours)
        _refine(csr.indptr, csr.indices, colours, refined)
        refined_classes = _count_distinct(refined)
        if refined_classes <= classes:
            break
        colours, classes = refined, refined_classes
    return colours


def place(dense: NDArray[np.int32], ties: NDArray[np.int32]) -> Sequences:
    """Sort the nodes of each head by (dense rank, place in `ties`), in linear time."""
    heads = [place_head(row, ties) for row in dense]
    return Sequences(
        order=np.stack([order for order, _ in heads]), rank=np.stack([rank for _, rank in heads])
    )


def place_head(
    dense: NDArray[np.int32], ties: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Order and rank of one head, [n] each."""
    order = np.empty(dense.size, dtype=np.int32)
    rank = np.empty(dense.size, dtype=np.int32)
    _place_head(dense, ties, order, rank)
    return order, rank


def head_columns(columns: NDArray[np.floating], heads: int, seed: int) -> NDArray[np.float64]:
    """Positions of every head from the store's columns: the first column, then random mixtures of all.

    Nodes with equal columns get equal positions in every head, and no node's position depends on
    where it is stored: products are summed column by column; a matrix product does not guarantee an order.

    Args:
        columns: Standardised columns, the approximate position r_A first.
        heads: Number of heads.
        seed: Seed of the mixtures.

    Shapes: [n, P] → [n, H]
    """
    weights = np.random.default_rng(seed).standard_normal((columns.shape[1], heads))
    weights[:, 0] = np.arange(columns.shape[1]) == 0
    positions = np.zeros((columns.shape[0], heads))
    for column, row in zip(columns.T, weights, strict=True):
        positions += column[:, None] * row
    return positions


def from_order(order: NDArray[np.integer]) -> Sequences:
    """Sequences from given orders [H, n], such as a random or a Cuthill-McKee one."""
    places = np.arange(order.shape[1], dtype=np.int32)
    rank = np.empty(order.shape, dtype=np.int32)
    np.put_along_axis(rank, order, np.broadcast_to(places, order.shape), axis=1)
    return Sequences(order=np.ascontiguousarray(order, dtype=np.int32), rank=rank)


def _count_distinct(colours: NDArray[np.uint64]) -> int:
    ordered = np.sort(colours)
    return int(np.count_nonzero(ordered[1:] != ordered[:-1])) + min(1, ordered.size)


@njit(cache=True, nogil=True)
def _number_runs(values, by_value, out):  # type: ignore[no-untyped-def]
    number = 0
    for place in range(by_value.size):
        if place and values[by_value[place]] != values[by_value[place - 1]]:
            number += 1
        out[by_value[place]] = number


@njit(cache=True, nogil=True)
def _mark_shared(dense, shared):  # type: ignore[no-untyped-def]
    counts = np.zeros(dense.size, dtype=np.int32)
    for node in range(dense.size):
        counts[dense[node]] += 1
    for node in range(dense.size):
        shared[node] |= counts[dense[node]] > 1


@njit(cache=True, nogil=True)
def _place_head(dense, ties, order, rank):  # type: ignore[no-untyped-def]
    # A counting sort: stable, so nodes at the same position keep their order in `ties`.
    size = dense.size
    starts = np.zeros(size + 1, dtype=np.int32)
    for node in range(size):
        starts[dense[node] + 1] += 1
    for number in range(size):
        starts[number + 1] += starts[number]
    for place in range(size):
        node = ties[place]
        slot = starts[dense[node]]
        starts[dense[node]] = slot + 1
        order[slot] = node
        rank[node] = slot


@njit(cache=True, nogil=True)
def _mix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> np.uint64(30))) * MIX_1
    word = (word ^ (word >> np.uint64(27))) * MIX_2
    return word ^ (word >> np.uint64(31))


@njit(cache=True, nogil=True)
def _seed_colours(indptr, dense, colours):  # type: ignore[no-untyped-def]
    for node in range(colours.size):
        colour = _mix(np.uint64(indptr[node + 1] - indptr[node]) + GOLDEN)
        for head in range(dense.shape[0]):
            colour = _mix((colour ^ np.uint64(dense[head, node])) + GOLDEN)
        colours[node] = colour


@njit(cache=True, nogil=True)
def _refine(indptr, indices, colours, refined):  # type: ignore[no-untyped-def]
    # Addition commutes, so the sum over neighbours does not depend on how they are stored.
    for node in range(colours.size):
        total = np.uint64(0)
        for edge in range(indptr[node], indptr[node + 1]):
            total += _mix(colours[indices[edge]] + GOLDEN)
        refined[node] = _mix((colours[node] ^ _mix(total)) + GOLDEN)
