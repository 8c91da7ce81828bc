"""Windows over circular sequences: node ids and adjacency bits, built from the edges in one walk a head.

Legend: n nodes, H heads, R records, b segment length, W = ⌈b²/64⌉ words.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.arrays import CSR
from pipeline.sequences import Sequences

# A row of a window's adjacency is kept in one 64-bit word.
MAX_LENGTH = 64
WORD_BITS = 64


@dataclass(frozen=True)
class Windows:
    """The segments of some nodes, one a head: the record of a node starts at that node.

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
class Segments:
    """Every window of every head in O(n·H) memory: a window is a slice of the sequence and its band.

    Shapes:
        ahead: [H, n] unsigned; bit δ of place i is the edge from the node at i to the node at i + δ.
        behind: [H, n] unsigned; bit b−1−δ of place i is the edge from the node at i to the node at i − δ.
        edge_band: [H, n, 2b−1] edge ids by offset −(b−1) … b−1, −1 for none, or None.
    """

    sequences: Sequences
    length: int
    ahead: NDArray[np.unsignedinteger]
    behind: NDArray[np.unsignedinteger]
    edge_band: NDArray[np.integer] | None = None

    def windows(self, nodes: NDArray[np.integer]) -> Windows:
        """The segments that start at the given nodes, [R]."""
        shape = (nodes.size, self.sequences.num_heads)
        ids = np.empty((*shape, self.length), dtype=np.int32)
        words = np.empty((*shape, num_words(self.length)), dtype=np.uint64)
        sequences = self.sequences
        _expand(nodes, sequences.order, sequences.rank, self.ahead, self.behind, ids, words)
        if self.edge_band is None:
            return Windows(ids=ids, words=words.view(np.int64))
        edges = np.empty((*shape, self.length, self.length), dtype=self.edge_band.dtype)
        _expand_edges(nodes, sequences.rank, self.edge_band, edges)
        return Windows(ids=ids, words=words.view(np.int64), edges=edges)


def num_words(length: int) -> int:
    """64-bit words that hold a length × length bit mask."""
    return -(-length * length // WORD_BITS)


def check_length(length: int, num_nodes: int) -> None:
    """Refuse a segment length that the graph or the bit masks cannot hold."""
    if not 2 <= length <= MAX_LENGTH:
        raise ValueError(f"Expected 'segment_length' to be between 2 and {MAX_LENGTH} (got {length})")
    if length > num_nodes:
        raise ValueError(
            f"Expected 'segment_length' to be at most the {num_nodes} nodes of the graph (got {length})"
        )


def build_segments(sequences: Sequences, csr: CSR, length: int, *, edge_ids: bool = False) -> Segments:
    """Cut the circular sequences into one segment a node and head.

    Instead of setting an edge at offset δ < b in each of the b−δ windows that hold it, the walk over the
    edges sets one bit in the band of its first node; a window's mask is b shifts of that band, taken when
    the window is read.

    Args:
        sequences: The order of each head.
        csr: The graph.
        length: Nodes in a segment (b).
        edge_ids: Keep the id of every edge in the band too, for weights and multi-channel edge features.

    Raises:
        ValueError: if the graph has fewer than `length` nodes.
    """
    check_length(length, csr.num_nodes)
    if sequences.num_nodes != csr.num_nodes:
        raise ValueError(
            f"Expected 'sequences' to order the {csr.num_nodes} nodes of the graph "
            f"(got {sequences.num_nodes})"
        )
    ahead = np.empty(sequences.rank.shape, dtype=_band_type(length))
    behind = np.empty_like(ahead)
    for head in range(sequences.num_heads):
        _fill_band(csr.indptr, csr.indices, sequences.rank[head], length, ahead[head], behind[head])
    band = _build_edge_band(sequences, csr, length) if edge_ids else None
    return Segments(sequences=sequences, length=length, ahead=ahead, behind=behind, edge_band=band)


def _band_type(length: int) -> type[np.unsignedinteger]:
    # Reading windows at random is bound by the cache: the narrowest type that fits halves its time.
    return next(kind for kind in (np.uint8, np.uint16, np.uint32, np.uint64) if length <= np.iinfo(kind).bits)


def _build_edge_band(sequences: Sequences, csr: CSR, length: int) -> NDArray[np.integer]:
    dtype = np.int32 if csr.indices.size <= np.iinfo(np.int32).max else np.int64
    band = np.full((*sequences.rank.shape, 2 * length - 1), -1, dtype=dtype)
    for head in range(sequences.num_heads):
        _fill_edge_band(csr.indptr, csr.indices, sequences.rank[head], length, band[head])
    return band


def unpack(words: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    """Adjacency masks [..., b, b] from words [..., W]; the oracle of the bit layout."""
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
            # Not exclusive: on fewer than 2b nodes both ways round the circle may be short enough.
            if size - offset < length:
                backward |= one << np.uint64(length - 1 - (size - offset))
        ahead[place] = forward
        behind[place] = backward


@njit(cache=True, nogil=True)
def _fill_edge_band(indptr, indices, rank, length, band):
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
def _expand(nodes, order, rank, ahead, behind, ids, words):
    # Head by head, so that one head's sequence and band stay in the cache.
    num_heads, size = order.shape
    length = ids.shape[2]
    full = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - length)
    for head in range(num_heads):
        for record in range(nodes.size):
            place = rank[head, nodes[record]]
            word = shift = 0
            pending = np.uint64(0)
            for row in range(length):
                ids[record, head, row] = order[head, place]
                bits = np.uint64(ahead[head, place]) << np.uint64(row)
                bits |= np.uint64(behind[head, place]) >> np.uint64(length - 1 - row)
                bits &= full
                pending |= bits << np.uint64(shift)
                shift += length
                if shift >= 64:
                    words[record, head, word] = pending
                    word += 1
                    shift -= 64
                    pending = bits >> np.uint64(length - shift) if shift else np.uint64(0)
                place += 1
                if place == size:
                    place = 0
            if shift:
                words[record, head, word] = pending


@njit(cache=True, nogil=True)
def _expand_edges(nodes, rank, band, edges):
    num_heads, size = rank.shape
    length = edges.shape[2]
    for record in range(nodes.size):
        for head in range(num_heads):
            place = rank[head, nodes[record]]
            for row in range(length):
                for column in range(length):
                    edges[record, head, row, column] = band[head, place, length - 1 + column - row]
                place += 1
                if place == size:
                    place = 0
