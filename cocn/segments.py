"""Segments: windows of b consecutive nodes of a circular sequence, the unit of streaming training.

Legend: R records (nodes), H heads, S segment length, U distinct nodes of a batch, D features, P position
columns, L words of 64 adjacency bits, N nodes, M edges, E edge channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from cocn.edges import EdgeList
from cocn.graphs import GraphBatch


def num_words(segment_length: int) -> int:
    """64-bit words that hold the S×S adjacency bits of a segment."""
    return -(-segment_length * segment_length // 64)


@dataclass(frozen=True, eq=False)
class SegmentBatch:
    """A mini-batch of segments, one per node and head.

    Attributes:
        x: [U, D] features of the distinct nodes of the batch.
        index: [R, H, S] rows of x; the first place of a segment is its own node.
        words: [R, H, L] adjacency bits, bit p·S+q is the edge from place p to place q.
        node: [R] node of each record, numbered in the whole graph.
        y: [R] labels.
        positions: [U, P] structural or propagated inputs of position regression.
        values: [R, H, S, S, E] edge features in place of the bits.
        blocks: [R, B] input blocks of the records themselves, side by side (see :mod:`cocn.inputs`).
    """

    x: Tensor
    index: Tensor
    words: Tensor
    node: Tensor
    y: Tensor | None = None
    positions: Tensor | None = None
    values: Tensor | None = None
    blocks: Tensor | None = None

    def __post_init__(self) -> None:
        if self.index.dim() != 3 or self.index.size(0) != self.node.numel():
            raise ValueError(
                f"Expected 'index' to be [{self.node.numel()}, heads, length] (got {list(self.index.shape)})"
            )
        expected = [*self.index.shape[:2], num_words(self.segment_length)]
        if self.values is None and list(self.words.shape) != expected:
            raise ValueError(f"Expected 'words' to be {expected} (got {list(self.words.shape)})")
        if self.y is not None and self.y.size(0) != self.node.numel():
            raise ValueError(f"Expected 'y' to have {self.node.numel()} rows (got {self.y.size(0)})")
        if self.positions is not None and self.positions.size(0) != self.x.size(0):
            raise ValueError(
                f"Expected 'positions' to have {self.x.size(0)} rows (got {self.positions.size(0)})"
            )

    @property
    def num_records(self) -> int:
        return self.node.numel()

    @property
    def segment_length(self) -> int:
        return self.index.size(2)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> SegmentBatch:
        return self._map(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> SegmentBatch:
        return self._map(lambda value: value.pin_memory())

    def _map(self, function: Callable[[Tensor], Tensor]) -> SegmentBatch:
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(
            self, **{name: function(value) for name, value in present.items() if value is not None}
        )

    def adjacency(self, dtype: torch.dtype) -> Tensor:
        """[R, H, S, S, E] from the bits, or the edge features themselves."""
        if self.values is not None:
            return self.values.to(dtype)
        return unpack_bits(self.words, self.segment_length).to(dtype).unsqueeze(-1)


def unpack_bits(words_RHL: Tensor, segment_length: int) -> Tensor:
    """[R, H, L] words → [R, H, S, S] zeros and ones (uint8)."""
    shape = (*words_RHL.shape[:-1], segment_length, segment_length)
    octets = words_RHL.contiguous().view(torch.uint8)
    bits = (octets.unsqueeze(-1) >> torch.arange(8, dtype=torch.uint8, device=words_RHL.device)) & 1
    return bits.flatten(-2)[..., : segment_length * segment_length].reshape(shape)


def pack_bits(adjacency_RHSS: Tensor) -> Tensor:
    """Inverse of :func:`unpack_bits`."""
    length = adjacency_RHSS.size(-1)
    bits = adjacency_RHSS.flatten(-2).to(torch.uint8)
    padded = torch.nn.functional.pad(bits, (0, num_words(length) * 64 - length * length))
    octets = padded.unflatten(-1, (-1, 8)) << torch.arange(8, dtype=torch.uint8, device=bits.device)
    return octets.sum(-1, dtype=torch.uint8).contiguous().view(torch.long)


def window_index(order_HN: Tensor, rank_NH: Tensor, segment_length: int) -> Tensor:
    """Nodes of the segment of every node and head, circular. Returns [N, H, S]."""
    num_nodes = order_HN.size(1)
    places = (rank_NH.unsqueeze(-1) + torch.arange(segment_length, device=rank_NH.device)) % num_nodes
    heads = torch.arange(order_HN.size(0), device=rank_NH.device)[:, None]
    return order_HN[heads, places]


def window_adjacency(edges: EdgeList, rank_NH: Tensor, segment_length: int, dtype: torch.dtype) -> Tensor:
    """Edges inside every segment, walking the edges once per place. Returns [N, H, S, S, E]."""
    num_nodes, heads = rank_NH.shape
    order = torch.empty_like(rank_NH).scatter_(
        0, rank_NH, torch.arange(num_nodes, device=rank_NH.device)[:, None].expand_as(rank_NH)
    )
    out = torch.zeros(
        num_nodes,
        heads,
        segment_length,
        segment_length,
        edges.num_channels,
        dtype=dtype,
        device=rank_NH.device,
    )
    source, target = rank_NH[edges.source], rank_NH[edges.target]
    for near, far, first in ((source, target, True), (target, source, False)):
        offset = (far - near) % num_nodes
        edge, head = (offset < segment_length).nonzero(as_tuple=True)
        offset = offset[edge, head]
        values = (
            torch.ones(edge.numel(), 1, dtype=dtype, device=edge.device)
            if edges.values is None
            else edges.values[edge].to(dtype)
        )
        for place in range(segment_length):
            inside = (offset + place < segment_length) & ((offset > 0) | first)
            start = order[(near[edge, head][inside] - place) % num_nodes, head[inside]]
            here, there = torch.full_like(start, place), offset[inside] + place
            row, column = (here, there) if first else (there, here)
            out.index_put_((start, head[inside], row, column), values[inside], accumulate=True)
    return out


def check_segment_length(segment_length: int, graph: GraphBatch) -> None:
    """Refuse graphs that are shorter than a segment."""
    shortest = int(graph.lengths.min())
    if segment_length > shortest:
        raise ValueError(
            f"Expected 'segment_length' to be at most the {shortest} nodes of the graph "
            f"(got {segment_length})"
        )
