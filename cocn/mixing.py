"""Mixing blocks: combine a node with its neighbours and its windows, in every layer.

Implements: permute → windows → un-permute → mix heads → norm, residual, dropout. The entries of a window are
gated by the adjacency: a neighbour in a sequence that is not one in the graph contributes nothing.

Gated windows need no sequence. Tap d of a window reads, for every node, its graph neighbours that are d
places further along in the order of some head; heads share their weights, so what they read can be averaged
before it is mapped. That is one product with a sparse matrix of (node, tap) rows, in O(m·H·C).

Legend: N nodes, C channels, H heads, K window, T = 2(K−1) taps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cocn.aggregation import MeanAggregator
from cocn.sparse_rows import SparseRows, multiply, sparse_rows


class WindowTaps:
    """What the taps of gated windows read: (node, tap) rows of a sparse matrix.

    Args:
        edge_index: [2, M] edges, both directions of an undirected one.
        rank_NH: place of every node in the order of every head.
        window: K; tap d reads neighbours at d = −(K−1) … −1, 1 … K−1 places.
    """

    def __init__(self, edge_index: Tensor, rank_NH: Tensor, window: int) -> None:
        num_nodes = rank_NH.size(0)
        self.num_taps = 2 * (window - 1)
        source, target = edge_index
        offset = rank_NH[target] - rank_NH[source]
        near = (offset.abs() < window) & (offset != 0)
        edge, head = near.nonzero(as_tuple=True)
        distance = offset[edge, head]
        tap = distance + (window - 1) - (distance > 0).long()
        row = source[edge] * self.num_taps + tap
        # What several heads, or several neighbours at the same distance, bring to a tap is averaged.
        counts = torch.bincount(row, minlength=num_nodes * self.num_taps)
        values = 1 / counts[row].to(torch.get_default_dtype())
        self.rows = sparse_rows(row, target[edge], values, (num_nodes * self.num_taps, num_nodes))
        self._transposed: SparseRows | None = None

    @property
    def transposed(self) -> SparseRows:
        if self._transposed is None:
            self._transposed = self.rows.transpose()
        return self._transposed

    def to(self, device: torch.device | str) -> WindowTaps:
        moved = object.__new__(WindowTaps)
        moved.num_taps = self.num_taps
        moved.rows = self.rows.to(device)
        moved._transposed = None if self._transposed is None else self._transposed.to(device)
        return moved

    def __call__(self, x_NC: Tensor) -> Tensor:
        """What the taps of every node read, side by side: [N, T·C]."""
        return multiply(x_NC, self).view(x_NC.size(0), -1)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What the mixing blocks of a graph read, built once.

    Attributes:
        means: averages over all neighbours, or over out- and in-neighbours separately for a directed graph.
        taps: gated windows, or None.
    """

    means: tuple[MeanAggregator, ...]
    taps: WindowTaps | None = None

    def to(self, device: torch.device | str) -> Surroundings:
        return Surroundings(
            tuple(mean.to(device) for mean in self.means), None if self.taps is None else self.taps.to(device)
        )


class MixingBlock(nn.Module):
    r"""One block: the node itself, its neighbours and its windows, then a residual connection.

    .. math:: \mathbf{h} \leftarrow \mathbf{h} + \texttt{Dropout}\Big(\texttt{ReLU}\big(\mathbf{W}\mathbf{z}
              + \sum_{\delta} \mathbf{V}_\delta \bar{\mathbf{A}}_\delta \mathbf{z}
              + \sum_d \mathbf{U}_d \bar{\mathbf{A}}_d \mathbf{z}\big)\Big),
              \quad \mathbf{z} = \texttt{Norm}(\mathbf{h})

    The windows' weights start at zero, so that a block starts out as an average over neighbours.

    Args:
        channels: C.
        num_means: kinds of neighbours: 1, or 2 for a directed graph.
        num_taps: T, 0 for no windows.
        dropout: dropout rate.
    """

    def __init__(self, channels: int, num_means: int, num_taps: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)
        self.own = nn.Linear(channels, channels)
        self.neighbours = nn.ModuleList(nn.Linear(channels, channels, bias=False) for _ in range(num_means))
        self.windows = nn.Linear(num_taps * channels, channels, bias=False) if num_taps else None
        self.dropout = nn.Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for module in (self.norm, self.own, *self.neighbours):
            module.reset_parameters()
        if self.windows is not None:
            nn.init.zeros_(self.windows.weight)

    def forward(self, h_NC: Tensor, surroundings: Surroundings) -> Tensor:
        z = self.norm(h_NC)
        mixed = self.own(z)
        for linear, mean in zip(self.neighbours, surroundings.means, strict=True):
            mixed = mixed + linear(mean(z))
        if self.windows is not None and surroundings.taps is not None:
            mixed = mixed + self.windows(surroundings.taps(z))
        return h_NC + self.dropout(torch.relu(mixed))
