"""Windows over circular sequences: node ids and adjacency bits, built in one walk over the edges per head.

Legend: n nodes, H heads, R records, b segment length, W = ⌈b²/64⌉ words.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cocn.loading.csr import CSR
from cocn.loading.sequences import Sequences

# A row of a window's adjacency is kept in one 64-bit word.
MAX_LENGTH = 64
WORD_BITS = 64


@dataclass(frozen=True)
class Windows:
    """The segments of some nodes, one per head: the record of a node starts at that node.

    Shapes:
        ids: [R, H, b] int32, node ids in circular order.
        words: [R, H, W] int64; bit p·b + q, counted from the lowest of the first word, is the edge from the
            window's node p to its node q.
        edges: [R, H, b, b] edge ids (places in `CSR.indices`), −1 where there is no edge, or None.
    """

    ids: NDArray[np.int32]
    words: NDArray[np.int64]
    edges: NDArray[np.integer] | None = None


@dataclass(frozen=True)
class Band:
    """Every window of one head in O(n) memory: a window is a slice of the sequence and of its band.

    Shapes:
        order: [n] node at each place.
        rank: [n] place of each node.
        ahead: [n] unsigned; bit δ of place i is the edge from the node at i to the node at i + δ.
        behind: [n] unsigned; bit b−1−δ of place i is the edge from the node at i to the node at i − δ.
        edges: [n, 2b−1] edge ids by offset −(b−1) … b−1, −1 for none, or None.
    """

    order: NDArray[np.int32]
    rank: NDArray[np.int32]
    ahead: NDArray[np.unsignedinteger]
    behind: NDArray[np.unsignedinteger]
    edges: NDArray[np.integer] | None = None


@dataclass(frozen=True)
class Segments:
    """Every window of every head, cut when it is read."""

    length: int
    bands: tuple[Band, ...]

    def windows(self, nodes: NDArray[np.integer]) -> Windows:
        """The segments that start at the given nodes, [R]."""
        shape = (nodes.size, len(self.bands))
        ids = np.empty((*shape, self.length), dtype=np.int32)
        words = np.empty((*shape, num_words(self.length)), dtype=np.uint64)
        # Head by head, so that one head's sequence and band stay in the cache.
        for head, band in enumerate(self.bands):
            _cut(nodes, band.order, band.rank, band.ahead, band.behind, ids[:, head], words[:, head])
        return Windows(ids=ids, words=words.view(np.int64), edges=self._edges(nodes))

    def _edges(self, nodes: NDArray[np.integer]) -> NDArray[np.integer] | None:
        parts = []
        for band in self.bands:
            if band.edges is None:
                return None
            part = np.empty((nodes.size, self.length, self.length), dtype=band.edges.dtype)
            _cut_edges(nodes, band.rank, band.edges, part)
            parts.append(part)
        return np.stack(parts, axis=1)


def num_words(length: int) -> int:
    """64-bit words that hold a length × length bit mask."""
    return -(-length * length // WORD_BITS)


def check_length(length: int, num_nodes: int) -> None:
    """Refuse a segment length that is out of range or exceeds the number of nodes.

    Raises:
        ValueError: if it is out of range or above the number of nodes.
    """
    if not 2 <= length <= MAX_LENGTH:
        raise ValueError(f"Expected 'segment_length' to be between 2 and {MAX_LENGTH} (got {length})")
    if length > num_nodes:
        raise ValueError(
            f"Expected 'segment_length' to be at most the {num_nodes} nodes of the graph (got {length})"
        )


def build_segments(sequences: Sequences, csr: CSR, length: int, *, edge_ids: bool = False) -> Segments:
    """Cut the circular sequences into one segment per node and head.

    Instead of setting an edge at offset δ < b in each of the b−δ windows that contain it, the walk over the
    edges sets one bit in the band of its first node; a window's mask consists of b shifts of that band,
    computed when the window is read.

    Args:
        sequences: The order of each head.
        csr: The graph.
        length: Nodes in a segment (b).
        edge_ids: Also keep the id of every edge in the band, for weights and multi-channel edge features.

    Raises:
        ValueError: if the graph has fewer than `length` nodes.
    """
    check_length(length, csr.num_nodes)
    if sequences.num_nodes != csr.num_nodes:
        raise ValueError(
            f"Expected 'sequences' to order the {csr.num_nodes} nodes of the graph "
            f"(got {sequences.num_nodes})"
        )
    heads = zip(sequences.order, sequences.rank, strict=True)
    return Segments(length, tuple(build_band(order, rank, csr, length, edge_ids) for order, rank in heads))


def build_band(
    order: NDArray[np.int32], rank: NDArray[np.int32], csr: CSR, length: int, edge_ids: bool = False
) -> Band:
    """The band of one head: one walk over the edges."""
    ahead = np.empty(rank.size, dtype=_band_type(length))
    behind = np.empty_like(ahead)
    _fill_band(csr.indptr, csr.indices, rank, length, ahead, behind)
    edges = None
    if edge_ids:
        fits = csr.num_edges <= np.iinfo(np.int32).max
        edges = np.full((rank.size, 2 * length - 1), -1, dtype=np.int32 if fits else np.int64)
        _fill_edges(csr.indptr, csr.indices, rank, length, edges)
    return Band(order=order, rank=rank, ahead=ahead, behind=behind, edges=edges)


def _band_type(length: int) -> type[np.unsignedinteger]:
    # Reading windows at random is bound by the cache: the narrowest type that fits halves the time.
    return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if length <= np.iinfo(kind).bits)


def unpack(words: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """Adjacency masks [..., b, b] from words [..., W]; the reference for the bit layout."""
    octets = np.ascontiguousarray(words).astype("<i8", copy=False).view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, bitorder="little")[..., : length * length]
    return bits.reshape(*words.shape[:-1], length, length).astype(np.bool_)


@njit(cache=True, nogil=True)
def _fill_band(indptr, indices, rank, length, ahead, behind):
    size = rank.size
    one = np.uint64(1)
    for node in range(size):
        place = rank[node]
        forward = np.uint64(0)
        backward = np.uint64(0)
        for edge in range(indptr[node], indptr[node + 1]):
            offset = rank[indices[edge]] - place
            if offset < 0:
                offset += size
            if offset < length:
                forward |= one << np.uint64(offset)
            # Not exclusive: with fewer than 2b nodes both ways round the circle may be short enough.
            if size - offset < length:
                backward |= one << np.uint64(length - 1 - (size - offset))
        ahead[place] = forward
        behind[place] = backward


@njit(cache=True, nogil=True)
def _fill_edges(indptr, indices, rank, length, band):
    size = rank.size
    for node in range(size):
        place = rank[node]
        for edge in range(indptr[node], indptr[node + 1]):
            offset = rank[indices[edge]] - place
            if offset < 0:
                offset += size
            if offset < length:
                band[place, length - 1 + offset] = edge
            if size - offset < length:
                band[place, length - 1 - (size - offset)] = edge


@njit(cache=True, nogil=True)
def _cut(nodes, order, rank, ahead, behind, ids, words):
    size = order.size
    length = ids.shape[1]
    full = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - length)
    for record in range(nodes.size):
        place = rank[nodes[record]]
        word = shift = 0
        pending = np.uint64(0)
        for row in range(length):
            ids[record, row] = order[place]
            bits = np.uint64(ahead[place]) << np.uint64(row)
            bits |= np.uint64(behind[place]) >> np.uint64(length - 1 - row)
            bits &= full
            pending |= bits << np.uint64(shift)
            shift += length
            if shift >= 64:
                words[record, word] = pending
                word += 1
                shift -= 64
                pending = bits >> np.uint64(length - shift) if shift else np.uint64(0)
            place += 1
            if place == size:
                place = 0
        if shift:
            words[record, word] = pending


@njit(cache=True, nogil=True)
def _cut_edges(nodes, rank, band, edges):
    size = rank.size
    length = edges.shape[1]
    for record in range(nodes.size):
        place = rank[nodes[record]]
        for row in range(length):
            for column in range(length):
                edges[record, row, column] = band[place, length - 1 + column - row]
            place += 1
            if place == size:
                place = 0
