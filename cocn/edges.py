"""Permuted edge features P̂AP̂ᵀ, kept as the band near the diagonal that the convolutions read.

Implements: Â = P̂AP̂ᵀ of eq:permutation, in O((n + m)·taps) time and memory

An edge lands on cell (r_i, r_j), gated by γ_i γ_j, and the filter spreads it along both axes. Past the taps
of the filter nothing is left, so only edges whose ends lie within the band plus the taps can matter.

Legend: B graphs, H heads, N places, G = B·H sequences, M edges, E edge channels, P planes, W width of the
band.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from cocn.diagonal import Band
from cocn.permutation import circulant_matrix, circular_filter, num_taps
from cocn.windows import chunks, part

#: Up to this many places E is formed whole and then cut to the band, which is faster than building the band.
DENSE_LENGTH = 160


@dataclass(frozen=True, eq=False)
class EdgeList:
    """Edges of a batch of graphs, by graph and place within the graph.

    Attributes:
        graph: [M] graph of each edge.
        source: [M] first end, numbered within its graph.
        target: [M] second end.
        values: [M, E] features, or None for a plain adjacency.
        symmetric: whether every edge is there in both directions with equal features.
    """

    graph: Tensor
    source: Tensor
    target: Tensor
    values: Tensor | None
    symmetric: bool

    @property
    def num_channels(self) -> int:
        return 1 if self.values is None else self.values.size(1)

    def reverse(self) -> EdgeList:
        return EdgeList(self.graph, self.target, self.source, self.values, self.symmetric)

    def of_graph(self, graph: int) -> EdgeList:
        chosen = (self.graph == graph).nonzero().squeeze(1)
        values = None if self.values is None else self.values[chosen]
        zeros = torch.zeros_like(chosen)
        return EdgeList(zeros, self.source[chosen], self.target[chosen], values, self.symmetric)


def permuted_band(
    edges: EdgeList,
    rank_BHN: Tensor,
    gate_BHN: Tensor,
    tau: float | None,
    width: int,
    lengths_B: Tensor | None = None,
) -> Band:
    """The first ``width`` off-diagonals of P̂AP̂ᵀ on each side (one side where it is symmetric).

    Args:
        edges: the edges.
        rank_BHN: place of each node.
        gate_BHN: γ of each node.
        tau: relaxation factor, None for the standard permutation.
        width: number of off-diagonals to keep.
        lengths_B: number of nodes of each graph; None where nothing is padded.
    """
    graphs, _, length = rank_BHN.shape
    width = min(width, max(length - 1, 0))
    directions = [edges] if edges.symmetric else [edges, edges.reverse()]
    reach = width + num_taps(tau, gate_BHN.dtype)
    if length <= max(DENSE_LENGTH, 2 * reach + 1):
        planes = [_dense_triangle(each, rank_BHN, gate_BHN, tau, width, lengths_B) for each in directions]
    elif graphs == 1:
        planes = [_band_triangle(each, rank_BHN[0], gate_BHN[0], tau, width) for each in directions]
    else:
        return _graph_by_graph(edges, rank_BHN, gate_BHN, tau, width, lengths_B)
    return Band(planes[0] if len(planes) == 1 else torch.cat(planes, dim=2), len(directions))


def _graph_by_graph(
    edges: EdgeList,
    rank_BHN: Tensor,
    gate_BHN: Tensor,
    tau: float | None,
    width: int,
    lengths_B: Tensor | None,
) -> Band:
    """A batch of long graphs: each has its own period, so each gets its own band."""
    graphs, _, length = rank_BHN.shape
    sizes = [length] * graphs if lengths_B is None else lengths_B.tolist()
    cells = []
    for graph, size in enumerate(sizes):
        own = slice(graph, graph + 1)
        ranks, gates = rank_BHN[own, :, :size], gate_BHN[own, :, :size]
        band = permuted_band(edges.of_graph(graph), ranks, gates, tau, width)
        cells.append(F.pad(band.cells, (0, width - band.width, 0, 0, 0, 0, 0, length - size)))
    return Band(torch.cat(cells, dim=1), 1 if edges.symmetric else 2)


def _dense_triangle(
    edges: EdgeList,
    rank_BHN: Tensor,
    gate_BHN: Tensor,
    tau: float | None,
    width: int,
    lengths_B: Tensor | None,
) -> Tensor:
    """Upper off-diagonals by way of the whole matrix. Returns [N, G, E, W]."""
    graphs, heads, length = rank_BHN.shape
    by_graph = edges.graph[:, None], torch.arange(heads, device=rank_BHN.device)
    source, target = edges.source[:, None], edges.target[:, None]
    row, column = rank_BHN[*by_graph, source], rank_BHN[*by_graph, target]
    gates = gate_BHN[*by_graph, source] * gate_BHN[*by_graph, target]
    sequence = by_graph[0] * heads + by_graph[1]
    cell = (row * (graphs * heads) + sequence) * length + column
    matrix = _add_edges(cell, gates, edges.values, length * graphs * heads * length)
    matrix = matrix.view(-1, length, graphs * heads, length)
    lengths_G = None if lengths_B is None else lengths_B.repeat_interleave(heads)
    triangles = []
    for channel in matrix:
        rows = circular_filter(channel, tau, lengths_G)
        if tau is not None:
            rows = circular_filter(rows.permute(2, 1, 0).contiguous(), tau, lengths_G).permute(2, 1, 0)
        triangles.append(_Skew.apply(rows, width))
    return torch.stack(triangles, dim=2)


def window_band(adjacency_RHSSE: Tensor, gates_SG: Tensor | None, tau: float | None, width: int) -> Band:
    """The off-diagonals of P̂AP̂ᵀ inside segments, whose nodes already stand in order.

    Args:
        adjacency_RHSSE: edge features among the S places of each record and head.
        gates_SG: γ of each place; None where positions are not learned.
        tau: relaxation factor.
        width: number of off-diagonals to keep.
    """
    records, heads, length, _, channels = adjacency_RHSSE.shape
    matrix = adjacency_RHSSE.permute(2, 4, 0, 1, 3).reshape(length, channels * records * heads, length)
    if gates_SG is not None:
        gates = gates_SG.repeat(1, channels)
        matrix = matrix * gates.unsqueeze(-1) * gates.t()
    matrix = circular_filter(matrix, tau)
    if tau is not None:
        matrix = matrix @ circulant_matrix(length, tau, matrix).t()
    width = min(width, length - 1)
    upper = _Skew.apply(matrix, width)
    lower = _Skew.apply(matrix.transpose(0, 2), width)
    planes = [half.view(length, channels, records * heads, width).transpose(1, 2) for half in (upper, lower)]
    return Band(torch.cat(planes, dim=2), 2)


def _add_edges(cell: Tensor, gates: Tensor, values: Tensor | None, size: int) -> Tensor:
    """Sum gated edges into cells. Returns [E, size]."""
    flat = cell.reshape(-1)
    if values is None:
        return gates.new_zeros(size).index_add(0, flat, gates.reshape(-1))[None]
    planes = [
        gates.new_zeros(size).index_add(0, flat, (gates * value[:, None]).reshape(-1))
        for value in values.unbind(1)
    ]
    return torch.stack(planes)


class _Skew(torch.autograd.Function):
    """out[i, g, d−1] = x[i, g, i+d], zero past the end: a strided view one way, a strided copy the other."""

    @staticmethod
    def forward(ctx, x, width):  # type: ignore[no-untyped-def]
        ctx.width = width
        padded = F.pad(x, (0, width)).contiguous()
        return _skewed(padded, x.size(0), width).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        length, sequences, width = grad.shape
        padded = grad.new_zeros(length, sequences, length + width)
        _skewed(padded, length, width).copy_(grad)
        return padded[..., :length], None


def _skewed(padded_NGL: Tensor, length: int, width: int) -> Tensor:
    _, sequences, row = padded_NGL.shape
    return padded_NGL.as_strided((length, sequences, width), (sequences * row + 1, row, 1), 1)


def _band_triangle(
    edges: EdgeList, rank_HN: Tensor, gate_HN: Tensor, tau: float | None, width: int
) -> Tensor:
    """Upper off-diagonals of one long graph. Returns [N, H, E, W].

    Edges are laid out by column and distance above the diagonal, so that filtering along rows is a product
    over the last dimension; converting the layout to rows makes filtering along columns one as well.
    """
    heads, length = rank_HN.shape
    taps = num_taps(tau, gate_HN.dtype)
    lowest, highest = 1 - taps, width + taps
    reach = _edges_in_reach(edges, rank_HN, lowest, highest, circular=tau is not None)
    gates = gate_HN[reach.head, edges.source[reach.edge]] * gate_HN[reach.head, edges.target[reach.edge]]
    values = None if edges.values is None else edges.values[reach.edge]
    span = highest - lowest + 1
    place = reach.row if tau is None else (reach.row + reach.offset) % length
    cell = (place * heads + reach.head) * span + (reach.offset - lowest)
    planes = _add_edges(cell, gates[:, None], values, length * heads * span).view(-1, length, heads, span)
    if tau is not None:
        with torch.autocast(planes.device.type, enabled=False):
            planes = torch.stack([_FilterBand.apply(plane, tau, taps, width) for plane in planes])
    return planes.permute(1, 2, 0, 3)


class _Reach(NamedTuple):
    head: Tensor
    edge: Tensor
    row: Tensor
    offset: Tensor


def _edges_in_reach(edges: EdgeList, rank_HN: Tensor, lowest: int, highest: int, circular: bool) -> _Reach:
    """Edges whose offset, from the row of one end to the column of the other, lies in the range."""
    length = rank_HN.size(1)
    found = []
    for head, rank in enumerate(rank_HN):
        row = rank[edges.source]
        offset = rank[edges.target].sub_(row).sub_(lowest)
        if circular:
            offset.remainder_(length)
        edge = ((offset >= 0) & (offset <= highest - lowest)).nonzero().squeeze(1)
        found.append(_Reach(torch.full_like(edge, head), edge, row[edge], offset[edge].add_(lowest)))
    return _Reach(*(torch.cat(parts) for parts in zip(*found, strict=True)))


class _FilterBand(torch.autograd.Function):
    """Filter along both axes: offsets 1−taps…W+taps by column come in, offsets 1…W by row go out.

    Cells past the last place are cleared: the convolution pads the end with zeros, it does not wrap.
    """

    @staticmethod
    def forward(ctx, plane, tau, taps, width):  # type: ignore[no-untyped-def]
        length, heads, _ = plane.shape
        along_rows, along_columns = _band_filters(plane, tau, taps, width)
        ctx.save_for_backward(along_rows, along_columns)
        ctx.taps = taps
        out = plane.new_empty(length, heads, width)
        for places in chunks(length, plane):
            columns = _columns(places, taps, width, length, plane.device)
            by_column = plane[columns] @ along_rows
            torch.matmul(_turned(by_column, len(places)).contiguous(), along_columns, out=part(out, places))
        _clear_past_end(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        along_rows, along_columns = ctx.saved_tensors
        # Autocast may be on here although it was off going forward.
        with torch.autocast(grad.device.type, enabled=False):
            return _filter_back(grad.contiguous(), along_rows, along_columns, ctx.taps), None, None, None


def _filter_back(grad: Tensor, along_rows: Tensor, along_columns: Tensor, taps: int) -> Tensor:
    """Adjoint of the filter along both axes."""
    length, heads, width = grad.shape
    grad_plane = grad.new_zeros(length, heads, along_rows.size(0))
    for places in chunks(length, grad_plane):
        inner = _clear_past_end(part(grad, places).clone(), places.start, length) @ along_columns.t()
        by_column = grad.new_zeros(len(places) + inner.size(-1) - 1, heads, inner.size(-1))
        _turned(by_column, len(places)).copy_(inner)
        columns = _columns(places, taps, width, length, grad.device)
        if isinstance(columns, slice):
            grad_plane[columns] += by_column @ along_rows.t()
        else:
            grad_plane.index_add_(0, columns, by_column @ along_rows.t())
    return grad_plane


def _band_filters(plane: Tensor, tau: float, taps: int, width: int) -> tuple[Tensor, Tensor]:
    """Filters from offsets 1−taps…W+taps to 1−taps…W along rows, and from there to 1…W along columns."""
    span = width + 2 * taps
    offsets = torch.arange(span, device=plane.device, dtype=plane.dtype)
    along_rows = _decay(offsets[:, None] - offsets[: span - taps], tau)
    along_columns = _decay(offsets[taps : taps + width] - offsets[: span - taps, None], tau)
    return along_rows, along_columns


def _decay(distance: Tensor, tau: float) -> Tensor:
    return torch.where(distance >= 0, torch.exp(-tau * distance.clamp(min=0)), 0.0)


def _columns(places: range, taps: int, width: int, length: int, device: torch.device) -> slice | Tensor:
    """Columns that rows at these places read at offsets 1−taps…W, around the circle."""
    start, stop = places.start + 1 - taps, places.stop + width
    if start >= 0 and stop <= length:
        return slice(start, stop)
    return torch.arange(start, stop, device=device) % length


def _turned(by_column: Tensor, num_rows: int) -> Tensor:
    """Columns to rows: out[i, h, l] = x[i + l, h, l], a strided view."""
    _, heads, span = by_column.shape
    return by_column.as_strided((num_rows, heads, span), (heads * span, span, heads * span + 1))


def _clear_past_end(cells_NHW: Tensor, first: int = 0, length: int | None = None) -> Tensor:
    """Zero the cells (i, i+d) with i+d past the last place, in place; rows start at `first`."""
    rows, _, width = cells_NHW.shape
    length = rows if length is None else length
    for place in range(max(length - width, first), first + rows):
        cells_NHW[place - first, :, length - 1 - place :] = 0
    return cells_NHW
