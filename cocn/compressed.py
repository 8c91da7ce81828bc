"""Compressed convolution layers: node sets grow, edge features shrink from the anti-diagonal.

Implements: eq:coco-layer-node, eq:coco-layer-edge, the residual and inception compressed convolutions

Legend: N places, G sequences (graphs × heads), C channels, K kernel size, M node sets, P planes, W band
width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cocn.diagonal import Band, DiagonalConvolution
from cocn.windows import add_average, average_windows, chunks, num_windows, part


def read_and_compress(
    band: Band, kernel_size: int, step: int, following_width: int
) -> tuple[Tensor, Band | None]:
    r"""What the windows of a layer read of E, [N, G, P, ≤K−1], and the edge features of the next level.

    .. math:: E^{(l)} = \texttt{Tri}(E^{(l-1)}, K) \text{ for unit steps, else }
              \texttt{MaxPool}(E^{(l-1)}, K, s)

    ``Tri`` drops the diagonals |i−j| < K and closes the gap: upper[i, j] = E[i, j+K−1] for j > i, lower[i, j]
    = E[i+K−1, j] for i > j. In band form it is a slice.

    Args:
        band: E.
        kernel_size: K.
        step: step of the layer.
        following_width: off-diagonals that the layers above read; 0 skips their computation.
    """
    near, outer = band.split(kernel_size)
    if following_width == 0:
        return near, None
    if step == 1:
        return near, outer
    sets = num_windows(band.cells.size(0), kernel_size)
    cells = _MaxPool.apply(band.cells, kernel_size, min(following_width, sets - 1))
    return near, Band(cells, band.num_directions)


class _MaxPool(torch.autograd.Function):
    """Max over K×K blocks; cells that tie for it share the gradient."""

    @staticmethod
    def forward(ctx, cells, kernel_size, width):  # type: ignore[no-untyped-def]
        length, *middle, _ = cells.shape
        out = cells.new_empty(num_windows(length, kernel_size), *middle, width)
        for windows in chunks(out.size(0), out):
            torch.amax(_blocks(cells, windows, kernel_size, width), (-2, -1), out=part(out, windows))
        ctx.save_for_backward(cells, out)
        ctx.kernel_size = kernel_size
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        cells, out = ctx.saved_tensors
        kernel_size, width = ctx.kernel_size, grad.size(-1)
        grad_cells = torch.zeros_like(cells)
        for windows in chunks(out.size(0), out):
            blocks = _blocks(cells, windows, kernel_size, width)
            largest = blocks == part(out, windows)[..., None, None]
            share = part(grad, windows) / largest.sum((-2, -1))
            _add_blocks(grad_cells, largest * share[..., None, None], windows)
        return grad_cells, None, None


def _blocks(cells_NGPW: Tensor, windows: range, kernel_size: int, width: int) -> Tensor:
    """Blocks (I, I+D), D = 1…width, as [I, G, P, D, K, K]: rows IK+p, offsets DK+q−p, zeros past the end."""
    rows = cells_NGPW[windows.start * kernel_size : windows.stop * kernel_size]
    missing_rows = len(windows) * kernel_size - rows.size(0)
    missing_offsets = max((width + 1) * kernel_size - 1 - rows.size(-1), 0)
    if missing_rows or missing_offsets:
        rows = F.pad(rows, (0, missing_offsets, 0, 0, 0, 0, 0, missing_rows))
    rows = rows.unflatten(0, (-1, kernel_size))
    taken = [rows[:, row, ..., _offsets(row, kernel_size, width)] for row in range(kernel_size)]
    return torch.stack([row.unflatten(-1, (width, kernel_size)) for row in taken], dim=-2)


def _add_blocks(grad_cells: Tensor, blocks: Tensor, windows: range) -> None:
    """Adjoint of :func:`_blocks`, in place."""
    *_, width, kernel_size, _ = blocks.shape
    for row in range(kernel_size):
        rows = grad_cells[windows.start * kernel_size + row : windows.stop * kernel_size : kernel_size]
        target = rows[..., _offsets(row, kernel_size, width)]
        target += blocks[: rows.size(0), ..., row, :].flatten(-2)[..., : target.size(-1)]


def _offsets(row: int, kernel_size: int, width: int) -> slice:
    first = kernel_size - 1 - row
    return slice(first, first + width * kernel_size)


class CompressedLayer(nn.Module):
    r"""One compressed convolution layer (unit step) or compressed pooling layer (step K).

    .. math:: H^{(l)} = \tfrac{1}{|\mathcal{K}|}\sum_{k \in \mathcal{K}}
              \texttt{AvgPool}\big(\sigma(\mathcal{K}(E^{(l-1)}, H^{(l-1)}, k)), K-k+1, s\big)
              \;[+\ \texttt{AvgPool}(H^{(l-1)}, K, s)]

    With one kernel this is eq:coco-layer-node. With several (inception) each is followed by the average
    pooling that gives its node sets the size K of the largest; the bracket is the residual form.

    Deviation: inception branches are averaged where the paper sums them, so that the scale does not depend on
    their number.

    Args:
        in_channels: channels of H; 0 to read structure only.
        out_channels: channels of the node sets.
        kernel_sizes: one kernel size, or several for inception.
        step: 1, or the largest kernel size for a pooling layer.
        edge_channels: channels of E; 0 to read node features only.
        residual: add the average of the members.
        dropout: dropout rate of the learned part.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_sizes: Sequence[int],
        step: int = 1,
        edge_channels: int = 1,
        residual: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.kernel_size = max(kernel_sizes)
        self.step = step
        self.residual = residual
        if step not in (1, self.kernel_size):
            raise ValueError(f"Expected 'step' to be 1 or the kernel size {self.kernel_size} (got {step})")
        if residual and in_channels not in (0, out_channels):
            raise ValueError(
                f"Expected 'in_channels' to equal 'out_channels' of a residual layer "
                f"(got {in_channels}, {out_channels})"
            )
        self.branches = nn.ModuleList(
            DiagonalConvolution(in_channels, out_channels, size, edge_channels) for size in kernel_sizes
        )
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for branch in self.branches:
            branch.reset_parameters()  # type: ignore[operator]

    def forward(
        self, h_NGC: Tensor, band: Band | None, mask_NG1: Tensor | None = None, following_width: int = 0
    ) -> tuple[Tensor, Band | None]:
        """Returns node sets [⌈N/step⌉, G, C] and the band of their edge features.

        Args:
            h_NGC: features of the node sets, zero where padded.
            band: their edge features; None for no structure.
            mask_NG1: 1 where a place is real; None where nothing is padded.
            following_width: off-diagonals of the new edge features that will be read.
        """
        near, following, directions = None, None, 1
        if band is not None:
            directions = band.num_directions
            near, following = read_and_compress(band, self.kernel_size, self.step, following_width)
        branches = cast("list[DiagonalConvolution]", self.branches)
        outputs = [self._branch(branch, h_NGC, near, directions, mask_NG1) for branch in branches]
        out = self.dropout(outputs[0] if len(outputs) == 1 else torch.stack(outputs).mean(0))
        if self.residual and branches[0].in_channels:
            out = add_average(out, h_NGC, self.kernel_size, self.step)
        if mask_NG1 is not None:
            out = out * mask_NG1[:: self.step]
        return out, following

    def _branch(
        self,
        branch: DiagonalConvolution,
        h_NGC: Tensor,
        near: Tensor | None,
        directions: int,
        mask_NG1: Tensor | None,
    ) -> Tensor:
        size = branch.kernel_size
        if size == self.kernel_size:
            return branch(h_NGC, near, directions, self.step, activate=True)
        inner = near if near is None else near[..., : size - 1]
        sets = branch(h_NGC, inner, directions, 1, activate=True)
        if mask_NG1 is not None:
            sets = sets * mask_NG1
        return average_windows(sets, self.kernel_size - size + 1, self.step)

    def extra_repr(self) -> str:
        return f"step={self.step}, residual={self.residual}"
