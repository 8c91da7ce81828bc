r"""Means over neighbours, the aggregation of message-passing blocks.

Implements: :math:`\mathbf{Y} = \mathbf{D}^{-1}\mathbf{A}\mathbf{X}` and its gradient
:math:`\mathbf{A}^\top\mathbf{D}^{-1}\,\partial\mathbf{Y}`, in O((n + m)·C)

Legend: N nodes, M edges, C channels.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from cocn.sparse_rows import SparseRows, multiply, sparse_rows

Direction = Literal["in", "out", "both"]


class MeanAggregator:
    r"""Mean over the neighbours of every node, weighted where weights are given; zeros without neighbours.

    The operator is not symmetric, so its gradient needs the transposed rows; they are built once, when the
    first gradient asks for them.

    Args:
        indptr: [N + 1] where the neighbours of each node start.
        indices: [M] neighbours.
        num_nodes: number of nodes.
        weight: [M] non-negative weights of the neighbours; ones where None.

    Shapes:
        - **input:** x [N, C]
        - **output:** [N, C]
    """

    def __init__(self, indptr: Tensor, indices: Tensor, num_nodes: int, weight: Tensor | None = None) -> None:
        if indptr.numel() != num_nodes + 1:
            raise ValueError(f"Expected 'indptr' to have {num_nodes + 1} entries (got {indptr.numel()})")
        share = _shares(indptr, num_nodes, weight)
        self.rows = SparseRows(indptr, indices, share, num_nodes)
        self._transposed: SparseRows | None = None

    @property
    def num_nodes(self) -> int:
        return self.rows.num_rows

    @property
    def transposed(self) -> SparseRows:
        if self._transposed is None:
            self._transposed = self.rows.transpose()
        return self._transposed

    def to(self, device: torch.device | str) -> MeanAggregator:
        moved = object.__new__(MeanAggregator)
        moved.rows = self.rows.to(device)
        moved._transposed = None if self._transposed is None else self._transposed.to(device)
        return moved

    def __call__(self, x_NC: Tensor) -> Tensor:
        return multiply(x_NC, self)


def mean_aggregator(
    edge_index: Tensor, num_nodes: int, direction: Direction = "both", weight: Tensor | None = None
) -> MeanAggregator:
    """Build an aggregator from edges in any order.

    Args:
        edge_index: [2, M], sources and targets.
        num_nodes: number of nodes, isolated ones included.
        direction: ``in`` averages over the sources of the edges into a node, ``out`` over the targets of the
            edges out of it, ``both`` over all of them, where a neighbour in both directions counts once and
            the larger of the two weights counts.
        weight: [M], non-negative; ones where None.
    """
    source, target = edge_index
    if direction == "both":
        source, target, weight = _undirected(source, target, num_nodes, weight)
    elif direction == "out":
        source, target = target, source
    elif direction != "in":
        raise ValueError(f"Expected 'direction' to be 'in', 'out' or 'both' (got {direction!r})")
    entries = torch.ones_like(target, dtype=torch.float32) if weight is None else weight
    rows = sparse_rows(target, source, entries, (num_nodes, num_nodes))
    return MeanAggregator(rows.indptr, rows.indices, num_nodes, None if weight is None else rows.values)


def _undirected(
    source: Tensor, target: Tensor, num_nodes: int, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    keys = torch.cat([source * num_nodes + target, target * num_nodes + source])
    merged = None
    if weight is None:
        keys = keys.unique()
    else:
        keys, inverse = keys.unique(return_inverse=True)
        merged = weight.new_zeros(keys.numel()).scatter_reduce_(0, inverse, weight.repeat(2), "amax")
    return keys // max(num_nodes, 1), keys % max(num_nodes, 1), merged


def _shares(indptr: Tensor, num_nodes: int, weight: Tensor | None) -> Tensor:
    """[M] weight of each neighbour over the sum of its row."""
    counts = indptr.diff()
    if weight is None:
        return torch.repeat_interleave(1 / counts.to(torch.get_default_dtype()), counts)
    row = torch.repeat_interleave(counts)
    total = weight.new_zeros(num_nodes).index_add_(0, row, weight)
    return weight / total.clamp(min=torch.finfo(weight.dtype).tiny)[row]
