"""Segment CoCN: the network of the family on windows of a long sequence.

Legend: T nodes of all graphs, H heads, C channels, E edge channels, R records, S segment length, U distinct
nodes of a batch, G = R·H windows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cocn.edges import window_band
from cocn.graphs import GraphBatch
from cocn.heads import max_over_sets
from cocn.models import ALL_HEADS, CoCN
from cocn.permutation import circular_filter, gate
from cocn.ranking import normalises, window_ranks
from cocn.segments import SegmentBatch, check_segment_length, window_adjacency, window_index


class SegmentCoCN(CoCN):
    r"""Segment CoCN: the network inside a window of S consecutive nodes, one window per node and head.

    The pooled representation of a node's segment is its representation, so a mini-batch needs only the
    segments of its nodes: pass a :class:`SegmentBatch` to train on graphs of any size, or x and edges as with
    the other models.

    Args:
        segment_length: S, the number of nodes in a segment.
        settings: those of :class:`CoCN`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        segment_length: int = 8,
        residual: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, residual=residual, **settings)
        self.segment_length = segment_length

    def _recovers_nodes(self) -> bool:
        return False

    def forward(self, data: Any, edge_index: Tensor | None = None, **tensors: Any) -> Tensor:
        """Predict for the records of a :class:`SegmentBatch`, or for everything in a graph."""
        if isinstance(data, SegmentBatch):
            return self.out(self.dropout(self.embed_segments(data)))
        return super().forward(data, edge_index, **tensors)

    def embed(self, graph: GraphBatch, heads: slice = ALL_HEADS) -> Tensor:
        """[T, H·C] for nodes and links; for graphs the max over their segments, [B, H·C]."""
        check_segment_length(self.segment_length, graph)
        positions = self.regress_positions(graph)[:, heads]
        h_TC = self.read_features(self.graph_features(graph))
        index, adjacency = self._windows(graph, positions.detach())
        nodes = self.embed_windows(h_TC, positions, index, adjacency)
        if self.task != "graph":
            return graph.symmetrise(torch.empty_like(nodes).index_copy(0, graph.arrangement, nodes))
        padded = graph.pad(nodes)
        if graph.padded_lengths is not None:
            places = torch.arange(graph.max_length, device=padded.device)
            padded = padded.masked_fill((places >= graph.lengths[:, None]).unsqueeze(-1), -torch.inf)
        return padded.amax(1)

    def _windows(self, graph: GraphBatch, positions_TH: Tensor) -> tuple[Tensor, Tensor]:
        """Segments of all nodes: rows of h [T, H, S] and adjacency [T, H, S, S, E]."""
        starts = (graph.lengths.cumsum(0) - graph.lengths).tolist()
        index, adjacency = [], []
        for number, (start, size) in enumerate(zip(starts, graph.lengths.tolist(), strict=True)):
            order = positions_TH[start : start + size].t().contiguous().argsort(dim=1, stable=True)
            places = torch.arange(size, device=order.device).expand_as(order)
            ranks = torch.empty_like(order).scatter_(1, order, places).t().contiguous()
            edges = graph.edges if graph.num_graphs == 1 else graph.edges.of_graph(number)
            index.append(window_index(order, ranks, self.segment_length) + start)
            adjacency.append(window_adjacency(edges, ranks, self.segment_length, positions_TH.dtype))
        return torch.cat(index), torch.cat(adjacency)

    def embed_segments(self, batch: SegmentBatch) -> Tensor:
        """[R, H·C] for the records of a batch.

        Positions are regressed from ``batch.positions``: structural ones, or Ã^t X for explicit positions. A
        batch without them uses the rows of x, taken to be propagated already.
        """
        h_UC = self.read_features(batch.x)
        positions = None
        if self.positions is not None:
            positions = self.positions(batch.x if batch.positions is None else batch.positions)
        return self.embed_windows(h_UC, positions, batch.index, batch.adjacency(h_UC.dtype))

    def embed_windows(
        self, h_UC: Tensor, positions_UH: Tensor | None, index_RHS: Tensor, adjacency_RHSSE: Tensor
    ) -> Tensor:
        """The network on windows: a permutation of period S, then compressed convolutions, then max."""
        records, heads, length = index_RHS.shape
        rows = index_RHS.permute(2, 0, 1).reshape(-1)
        sequence = h_UC.index_select(0, rows).view(length, records * heads, -1)
        gates_SG = None
        if positions_UH is not None and positions_UH.requires_grad:
            head = torch.arange(heads, device=index_RHS.device)[:, None]
            normalise = normalises(self.normalise_rank_gradient, "pairwise")
            gates = gate(window_ranks(positions_UH[index_RHS, head], normalise), self.tau)
            gates_SG = gates.permute(2, 0, 1).reshape(length, -1)
            sequence = sequence * gates_SG.unsqueeze(-1)
        sequence = circular_filter(sequence, self.tau)
        band = None
        if self.structure_features:
            band = window_band(adjacency_RHSSE, gates_SG, self.tau, self.stack.band_width)
        return max_over_sets(self.down(sequence, band)[-1], heads)
