"""Propagation with the normalised adjacency, the only module that knows about sparse back ends.

Implements: the operator Ã of eq:approximate-ex-pos-implementation
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cocn.sparse_rows import SparseRows, has_compiler

Backend = Literal["torch", "torch-sparse"]


def available_backend() -> Backend:
    """The fastest installed back end: our own compiled product, otherwise the extra [torch-sparse]."""
    if has_compiler():
        return "torch"
    return "torch-sparse" if importlib.util.find_spec("torch_sparse") else "torch"


@dataclass(frozen=True, eq=False)
class NormalisedAdjacency:
    r"""The symmetric operator :math:`\tilde{\mathbf{A}} = \mathbf{D}^{-1/2}\mathbf{A}\mathbf{D}^{-1/2}` in
    CSR.

    Because it is symmetric, the backward of one propagation is the same product and no transpose is built.
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor

    @cached_property
    def rows(self) -> SparseRows:
        """The operator as the compiled product reads it."""
        return SparseRows(self.indptr, self.indices, self.values, self.num_nodes)

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    def to(self, device: torch.device | str) -> NormalisedAdjacency:
        return NormalisedAdjacency(self.indptr.to(device), self.indices.to(device), self.values.to(device))

    def propagate(self, x_ND: Tensor, power: int = 1, backend: Backend | None = None) -> Tensor:
        """Ã^power x, differentiable in x."""
        if power == 0:
            return x_ND
        return _Propagate.apply(x_ND, self, power, backend or available_backend())


def normalised_adjacency(
    edge_index: Tensor, num_nodes: int, edge_weight: Tensor | None = None, self_loops: bool = True
) -> NormalisedAdjacency:
    """Build Ã from edges in any order, symmetrised.

    Deviation: an edge given in one direction counts in both, because positions are a matter of distance; of
    two directions with different weights the larger one counts. Self-loops are added unless switched off:
    without them an even power leaves bipartite graphs in two disconnected halves.

    Args:
        edge_index: [2, M].
        num_nodes: number of nodes, isolated ones included.
        edge_weight: [M], non-negative; ones where None.
        self_loops: give every node an edge to itself, of weight 1.
    """
    source, target = torch.cat([edge_index, edge_index.flip(0)], dim=1)
    if edge_weight is None:
        weight = torch.ones(source.numel(), device=source.device)
    else:
        weight = torch.cat([edge_weight, edge_weight])
    off_diagonal = source != target
    keys = (source * num_nodes + target)[off_diagonal]
    unique, inverse = keys.unique(return_inverse=True)
    merged = weight.new_zeros(unique.numel()).scatter_reduce_(0, inverse, weight[off_diagonal], "amax")
    if self_loops:
        loops = torch.arange(num_nodes, device=source.device) * (num_nodes + 1)
        unique, order = torch.cat([unique, loops]).sort()
        merged = torch.cat([merged, merged.new_ones(num_nodes)])[order]
    source, target = unique // max(num_nodes, 1), unique % max(num_nodes, 1)
    degree = merged.new_zeros(num_nodes).index_add_(0, source, merged)
    inverse_root = degree.clamp(min=torch.finfo(degree.dtype).tiny).rsqrt() * (degree > 0)
    counts = torch.bincount(source, minlength=num_nodes)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return NormalisedAdjacency(indptr, target, merged * inverse_root[source] * inverse_root[target])


class _Propagate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, adjacency, power, backend):  # type: ignore[no-untyped-def]
        ctx.adjacency, ctx.power, ctx.backend = adjacency, power, backend
        return _multiply(adjacency, x, power, backend)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return _multiply(ctx.adjacency, grad, ctx.power, ctx.backend), None, None, None


def _multiply(adjacency: NormalisedAdjacency, x: Tensor, power: int, backend: Backend) -> Tensor:
    for _ in range(power):
        x = adjacency.rows.multiply(x) if backend == "torch" else _multiply_torch_sparse(adjacency, x)
    return x


def _multiply_torch_sparse(adjacency: NormalisedAdjacency, x: Tensor) -> Tensor:
    import torch_sparse

    matrix = torch_sparse.SparseTensor(
        rowptr=adjacency.indptr,
        col=adjacency.indices,
        value=adjacency.values.to(x.dtype),
        sparse_sizes=(adjacency.num_nodes, adjacency.num_nodes),
        is_sorted=True,
        trust_data=True,
    )
    # Sparse products have no reduced precision on CPUs.
    with torch.autocast(x.device.type, enabled=False):
        return matrix @ x.contiguous()
