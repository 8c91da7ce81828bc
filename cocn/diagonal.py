"""Diagonal convolution over a node sequence and the band of its edge features.

Implements: eq:edge-conv, eq:clique-conv

Legend: N places, G sequences (graphs × heads), C and O channels, K kernel size, M windows,
P planes (directions × edge channels), W width of the band, T = K(K−1)/2 pairs of places in a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cocn.windows import (
    accumulate_taps,
    accumulate_weight_gradient,
    chunks,
    num_windows,
    part,
    read_tap,
    rows_of,
)


@dataclass(frozen=True, eq=False)
class Band:
    """Edge features E near the diagonal: all that a stack of diagonal convolutions ever reads.

    ``cells[i, g, p, d−1]`` is E[i, i+d] in planes of the first direction and E[i+d, i] in those of the
    second, for d = 1…W. Symmetric E has one direction only. The main diagonal is never read.

    Attributes:
        cells: [N, G, P, W].
        num_directions: 1 where E is symmetric, else 2; the planes are ordered by direction, then channel.
    """

    cells: Tensor
    num_directions: int

    @property
    def width(self) -> int:
        return self.cells.size(-1)

    def split(self, kernel_size: int) -> tuple[Tensor, Band]:
        """What a window of this size reads, [N, G, P, ≤K−1], and what a unit-step layer leaves (Tri)."""
        near = min(kernel_size - 1, self.width)
        inner, outer = self.cells.split([near, self.width - near], dim=-1)
        return inner, Band(outer, self.num_directions)


class DiagonalConvolution(nn.Module):
    r"""Convolution of K×K blocks along the diagonal, with the node features of the same K places.

    .. math:: \mathcal{K}_i(E, H) = \sum_{p<K}\Big(\sum_{q \ne p} w_{p,q} E_{i+p,i+q}
              + \sum_t v_{p,t} H_{i+p,t}\Big) + c

    Deviation: the paper's sum includes q = p; the diagonal of E says nothing about edges (it is the mass that
    relaxation leaves there), and the K(K−1) other entries are read. A bias c is added.

    Args:
        in_channels: channels of the node features; 0 to read structure only.
        out_channels: number of kernels.
        kernel_size: K.
        edge_channels: channels of the edge features; 0 to read node features only.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, edge_channels: int = 1) -> None:
        super().__init__()
        if kernel_size < 1:
            raise ValueError(f"Expected 'kernel_size' to be at least 1 (got {kernel_size})")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.edge_channels = edge_channels
        pairs = kernel_size * (kernel_size - 1) // 2
        self.node_weight = nn.Parameter(torch.empty(kernel_size, in_channels, out_channels))
        self.edge_weight = nn.Parameter(torch.empty(2, edge_channels, pairs, out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        inputs = self.node_weight[:, :, 0].numel() + self.edge_weight[..., 0].numel()
        bound = math.sqrt(3.0 / max(inputs, 1))
        nn.init.uniform_(self.node_weight, -bound, bound)
        nn.init.uniform_(self.edge_weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(
        self,
        h_NGC: Tensor,
        near_NGPW: Tensor | None,
        num_directions: int = 1,
        step: int = 1,
        activate: bool = False,
    ) -> Tensor:
        """Convolve. Returns [M, G, O].

        Args:
            h_NGC: node set features; ignored where the layer has no input channels.
            near_NGPW: the first K−1 offsets of the band, or None for no structure.
            num_directions: directions the planes hold (see :class:`Band`).
            step: stride along the diagonal.
            activate: apply ReLU.
        """
        if near_NGPW is None:
            near_NGPW = h_NGC.new_zeros(*h_NGC.shape[:2], num_directions * self.edge_channels, 0)
        weight_PTO = self._plane_weights(num_directions)
        if near_NGPW.size(2) != weight_PTO.size(0):
            raise ValueError(
                f"Expected 'edge_attr' to have {self.edge_channels} channels "
                f"(got {near_NGPW.size(2) // num_directions})"
            )
        arguments = [h_NGC, near_NGPW, self.node_weight, weight_PTO, self.bias]
        if torch.is_autocast_enabled(h_NGC.device.type):
            dtype = torch.get_autocast_dtype(h_NGC.device.type)
            arguments = [argument.to(dtype) for argument in arguments]
        return _Diagonal.apply(*arguments, step, activate)

    def _plane_weights(self, num_directions: int) -> Tensor:
        # In symmetric E both triangles hold the same value, so their weights add.
        directed = self.edge_weight.sum(0, keepdim=True) if num_directions == 1 else self.edge_weight
        return directed.flatten(0, 1)

    def extra_repr(self) -> str:
        sizes = f"kernel_size={self.kernel_size}, edge_channels={self.edge_channels}"
        return f"{self.in_channels}, {self.out_channels}, {sizes}"


def _tap_pairs(kernel_size: int) -> list[slice]:
    """Slice of the T pairs whose first place is each tap: tap p meets offsets 1…K−1−p."""
    starts = [tap * (kernel_size - 1) - tap * (tap - 1) // 2 for tap in range(kernel_size)]
    return [slice(start, start + kernel_size - 1 - tap) for tap, start in enumerate(starts)]


class _Diagonal(torch.autograd.Function):
    """The convolution and its gradient, chunk by chunk, without ever unfolding a window."""

    @staticmethod
    def forward(ctx, h, near, node_weight, edge_weight, bias, step, activate):  # type: ignore[no-untyped-def]
        y = h.new_empty(num_windows(h.size(0), step), h.size(1), bias.size(0))
        active = torch.empty_like(y, dtype=torch.bool) if activate else None
        for windows in chunks(y.size(0), y):
            sets = part(y, windows)
            sets.copy_(bias.expand_as(sets))
            if node_weight.size(1):
                accumulate_taps(sets, h, node_weight, windows, step)
            for rows, weight, _ in _edge_taps(near, edge_weight, node_weight.size(0), windows, step):
                rows_of(sets[: rows.size(0)]).addmm_(rows.flatten(2).flatten(0, 1), weight.flatten(0, 1))
            if active is not None:
                torch.gt(sets, 0, out=part(active, windows))
                sets.relu_()
        # The mask, not y, is kept: y may be changed in place by what follows.
        ctx.save_for_backward(h, near, node_weight, edge_weight, active)
        ctx.step = step
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        h, near, node_weight, edge_weight, active = ctx.saved_tensors
        step, kernel_size = ctx.step, node_weight.size(0)
        grad_h = torch.empty_like(h) if ctx.needs_input_grad[0] and node_weight.size(1) else None
        grad_near = torch.zeros_like(near) if ctx.needs_input_grad[1] else None
        grad_node, grad_edge = torch.zeros_like(node_weight), torch.zeros_like(edge_weight)
        grad_bias = grad.new_zeros(grad.size(-1))
        cleared = 0
        for windows in chunks(grad.size(0), grad):
            inner = part(grad, windows)
            inner = inner.contiguous() if active is None else inner * part(active, windows)
            grad_bias += inner.sum((0, 1))
            if node_weight.size(1):
                accumulate_weight_gradient(grad_node, h, inner, windows, step)
            if grad_h is not None:
                reached = min((windows.stop - 1) * step + max(kernel_size, step), h.size(0))
                grad_h[cleared:reached].zero_()
                cleared = reached
                _spread_chunk(grad_h, inner, node_weight, windows, step)
            _edge_gradients(near, inner, edge_weight, kernel_size, windows, step, grad_edge, grad_near)
        return grad_h, grad_near, grad_node, grad_edge, grad_bias, None, None


def _spread_chunk(x_NGC: Tensor, y_WGO: Tensor, weight_KCO: Tensor, windows: range, step: int) -> None:
    """Add the gradient of a chunk of windows to the places it has read."""
    for tap, weight in enumerate(weight_KCO):
        rows = read_tap(x_NGC, windows, tap, step)
        source = rows_of(y_WGO[: rows.size(0)])
        if step == 1:
            rows_of(rows).addmm_(source, weight.t())
        else:
            rows.add_((source @ weight.t()).view_as(rows))


def _edge_taps(
    near: Tensor, edge_weight: Tensor, kernel_size: int, windows: range, step: int
) -> Iterator[tuple[Tensor, Tensor, tuple[int, slice]]]:
    """What each tap reads of the band [W, G, P, offsets], its weights [P, offsets, O], and where both are."""
    for tap, pairs in enumerate(_tap_pairs(kernel_size)):
        offsets = min(pairs.stop - pairs.start, near.size(-1))
        rows = read_tap(near, windows, tap, step)[..., :offsets]
        if rows.numel():
            pairs = slice(pairs.start, pairs.start + offsets)
            yield rows, edge_weight[:, pairs], (tap, pairs)


def _edge_gradients(
    near: Tensor,
    grad_WGO: Tensor,
    edge_weight: Tensor,
    kernel_size: int,
    windows: range,
    step: int,
    grad_edge: Tensor,
    grad_near: Tensor | None,
) -> None:
    for rows, weight, (tap, pairs) in _edge_taps(near, edge_weight, kernel_size, windows, step):
        flat_grad = rows_of(grad_WGO[: rows.size(0)])
        flat = rows.flatten(2).flatten(0, 1)
        grad_edge[:, pairs] += (flat.t() @ flat_grad).view_as(weight)
        if grad_near is not None:
            product = flat_grad @ weight.flatten(0, 1).t()
            read_tap(grad_near, windows, tap, step)[..., : rows.size(-1)] += product.view_as(rows)
