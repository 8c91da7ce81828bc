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

from cocn.diagonal import Band, DiagonalConvolution
from cocn.windows import average_windows, num_windows


def read_and_compress(band: Band, kernel_size: int, step: int) -> tuple[Tensor, Band]:
    r"""What the windows of a layer read of E, [N, G, P, ≤K−1], and the edge features of the next level.

    .. math:: E^{(l)} = \texttt{Tri}(E^{(l-1)}, K) \text{ for unit steps, else }
              \texttt{MaxPool}(E^{(l-1)}, K, s)

    ``Tri`` drops the diagonals |i−j| < K and closes the gap: upper[i, j] = E[i, j+K−1] for j > i, lower[i, j]
    = E[i+K−1, j] for i > j. In band form it is a slice.
    """
    near, outer = band.split(kernel_size)
    return near, outer if step == 1 else _max_pool(band, kernel_size)


def _max_pool(band: Band, kernel_size: int) -> Band:
    """Max over K×K blocks: block (I, I+D) holds rows IK+p and offsets DK+q−p, for p, q < K."""
    length, sequences, planes, width = band.cells.shape
    sets = num_windows(length, kernel_size)
    pooled = min((width + kernel_size - 1) // kernel_size, max(sets - 1, 0))
    cells = F.pad(
        band.cells,
        (0, max((pooled + 1) * kernel_size - 1 - width, 0), 0, 0, 0, 0, 0, sets * kernel_size - length),
    ).view(sets, kernel_size, sequences, planes, -1)
    rows = []
    for row in range(kernel_size):
        first = kernel_size - 1 - row
        offsets = cells[:, row, ..., first : first + pooled * kernel_size]
        rows.append(offsets.reshape(sets, sequences, planes, pooled, kernel_size))
    blocks = torch.stack(rows, dim=-1).flatten(-2)
    return Band(blocks.amax(-1), band.num_directions)


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
        in_channels: channels of H; 0 reads structure only.
        out_channels: channels of the node sets.
        kernel_sizes: one kernel size, or several for inception.
        step: 1, or the largest kernel size for a pooling layer.
        edge_channels: channels of E; 0 reads node features only.
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
        self, h_NGC: Tensor, band: Band | None, mask_NG1: Tensor | None = None
    ) -> tuple[Tensor, Band | None]:
        """Returns node sets [⌈N/step⌉, G, C] and the band of their edge features.

        Args:
            h_NGC: features of the node sets, zero where padded.
            band: their edge features; None for no structure.
            mask_NG1: 1 where a place is real; None where nothing is padded.
        """
        near, following, directions = None, None, 1
        if band is not None:
            directions = band.num_directions
            near, following = read_and_compress(band, self.kernel_size, self.step)
        branches = cast("list[DiagonalConvolution]", self.branches)
        outputs = [self._branch(branch, h_NGC, near, directions, mask_NG1) for branch in branches]
        out = self.dropout(outputs[0] if len(outputs) == 1 else torch.stack(outputs).mean(0))
        if self.residual and branches[0].in_channels:
            out = out + average_windows(h_NGC, self.kernel_size, self.step)
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
            return torch.relu(branch(h_NGC, near, directions, self.step))
        inner = near if near is None else near[..., : size - 1]
        sets = torch.relu(branch(h_NGC, inner, directions, 1))
        if mask_NG1 is not None:
            sets = sets * mask_NG1
        return average_windows(sets, self.kernel_size - size + 1, self.step)

    def extra_repr(self) -> str:
        return f"step={self.step}, residual={self.residual}"
