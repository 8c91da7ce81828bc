"""Orders of the nodes that put neighbours close together, one per head.

A segment sees what lies within b places, so an order is measured by its coverage: the share of edges whose
ends are that close. One order can cover few of the edges; several can cover many, if each targets the edges
that the earlier ones left uncovered. Heads therefore come in pairs: an order built for the uncovered edges
and its reverse, since a node's segment only runs forwards from it.

Legend: n nodes, m entries of the adjacency structure, H heads, b segment length.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cocn.loading.csr import CSR, Ids, edge_sources
from cocn.loading.sequences import sequence

Order = NDArray[np.int32]
Mask = NDArray[np.bool_]
# Takes a graph, a mask of the entries still to be covered, and a segment length.
OrderMaker = Callable[[CSR, Mask, int], Order]


@dataclass(frozen=True)
class HeadOrders:
    """Orders of the nodes and how many of the edges they cover.

    Shapes:
        rank: [n, H] int32, the place of every node in the order of every head.
    """

    rank: NDArray[np.int32]
    covered: float
    """Share of edges whose ends are less than b places apart in some head."""


def residual_orders(
    csr: CSR, positions: NDArray[np.float64], heads: int, length: int, make: OrderMaker
) -> HeadOrders:
    """Pairs of an order and its reverse, each made for the edges that no earlier pair covers.

    Once every edge is covered, the remaining heads use the nodes' positions, ascending and descending.

    Args:
        csr: The graph, both directions of every edge.
        positions: r_A; ties in it are broken by structure, so that the result depends on the graph and
            not on how its nodes happen to be numbered.
        heads: H.
        length: b.
        make: Makes one order.
    """
    canonical = canonical_order(csr, positions)
    graph = take_order(csr, canonical)
    sources, targets = edge_sources(graph), graph.indices
    alive = np.ones(graph.num_edges, dtype=np.bool_)
    rank = np.empty((heads, graph.num_nodes), dtype=np.int32)
    for head in range(heads):
        if head % 2:
            rank[head] = graph.num_nodes - 1 - rank[head - 1]
            continue
        order = make(graph, alive, length) if alive.any() else np.arange(graph.num_nodes, dtype=np.int32)
        rank[head][order] = np.arange(graph.num_nodes, dtype=np.int32)
        offset = np.abs(rank[head][sources] - rank[head][targets])
        alive &= np.minimum(offset, graph.num_nodes - offset) >= length
    back = np.empty((graph.num_nodes, heads), dtype=np.int32)
    back[canonical] = rank.T
    return HeadOrders(back, 1 - float(alive.mean()) if graph.num_edges else 1.0)


def canonical_order(csr: CSR, positions: NDArray[np.float64]) -> Order:
    """Nodes by descending degree, then by position, then by structure.

    Of equally good nodes `window_order` takes the last: nodes with few edges must be placed while their
    neighbours are near, whereas those with many will meet other neighbours later.
    """
    places = sequence(positions[:, None], csr).rank[0]
    return np.lexsort((places, -csr.degrees())).astype(np.int32)


def window_order(csr: CSR, alive: Mask, length: int) -> Order:
    """Repeatedly place the node with the most edges to the last b − 1 placed ones.

    This is Gorder (Wei et al., 2016) with edges as the only affinity. Where no node has such an edge, the
    one with the fewest uncovered edges is next, so that the ends of paths come first and are not stranded.
    It runs in O(n + m), since an affinity is an integer below b.
    """
    degrees = np.bincount(edge_sources(csr)[alive], minlength=csr.num_nodes)
    begin = np.argsort(degrees, kind="stable").astype(np.int32)
    order: Order = _window_order(_read_only(csr.indptr), _read_only(csr.indices), alive, length - 1, begin)
    return order


def cuthill_mckee_order(csr: CSR, alive: Mask, length: int) -> Order:
    """Reverse Cuthill–McKee on the edges still to be covered: small bandwidth rather than short windows."""
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    size = csr.num_nodes
    matrix = csr_matrix((alive.astype(np.int8), csr.indices, csr.indptr), shape=(size, size))
    matrix.eliminate_zeros()
    order: Order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    return np.ascontiguousarray(order)


def take_order(csr: CSR, order: Order) -> CSR:
    """Renumber the graph so that node `order[i]` becomes node i."""
    from scipy.sparse import csr_matrix

    ones = np.ones(csr.num_edges, dtype=np.int8)
    matrix = csr_matrix((ones, csr.indices, csr.indptr), shape=(csr.num_nodes, csr.num_nodes))
    matrix = matrix[order][:, order]
    matrix.sort_indices()
    return CSR(matrix.indptr.astype(np.int64), matrix.indices.astype(csr.indices.dtype))


def _read_only(array: Ids) -> Ids:
    """A read-only view: stored and computed graphs then share one compiled kernel."""
    view = array.view()
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def _window_order(indptr, indices, alive, window, begin):
    size = indptr.size - 1
    order = np.empty(size, dtype=np.int32)
    placed = np.zeros(size, dtype=np.uint8)
    # Nodes of equal affinity form a doubly linked list: rows are affinity, next node and previous node.
    links = np.full((3, size), -1, dtype=np.int32)
    links[0] = 0
    first = np.full(window + 1, -1, dtype=np.int32)
    best = start = 0
    for place in range(size):
        while best > 0 and first[best] < 0:
            best -= 1
        if best > 0:
            node = first[best]
            _unlink(node, links, first)
        else:
            while placed[begin[start]] != 0:
                start += 1
            node = begin[start]
        placed[node] = 1
        order[place] = node
        if place >= window:
            _shift(order[place - window], -1, indptr, indices, alive, placed, links, first)
        best = max(best, _shift(node, 1, indptr, indices, alive, placed, links, first))
    return order


@njit(cache=True, nogil=True)
def _shift(node, step, indptr, indices, alive, placed, links, first):
    """Change the affinity of a node's unplaced neighbours; returns the largest."""
    largest = 0
    for edge in range(indptr[node], indptr[node + 1]):
        other = indices[edge]
        if not alive[edge] or placed[other] != 0:
            continue
        _unlink(other, links, first)
        links[0, other] += step
        _link(other, links, first)
        largest = max(largest, links[0, other])
    return largest


@njit(cache=True, nogil=True)
def _link(node, links, first):
    affinity = links[0, node]
    if affinity == 0:
        return
    after = first[affinity]
    links[1, node], links[2, node] = after, -1
    if after >= 0:
        links[2, after] = node
    first[affinity] = node


@njit(cache=True, nogil=True)
def _unlink(node, links, first):
    affinity = links[0, node]
    if affinity == 0:
        return
    after, before = links[1, node], links[2, node]
    if before >= 0:
        links[1, before] = after
    else:
        first[affinity] = after
    if after >= 0:
        links[2, after] = before
