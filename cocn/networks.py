"""The convolution module: the stack of compressed layers, and its mirror for node-level models.

Legend: N places, G sequences (graphs × heads), C channels, K kernel size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from cocn.compressed import CompressedLayer
from cocn.diagonal import Band
from cocn.transposed import RecoveryScale, TransposedLayer


@dataclass(frozen=True, kw_only=True)
class StackSettings:
    """Shape of the convolution module; see :class:`cocn.models.CoCN` for the meaning of each field."""

    channels: int
    kernel_sizes: tuple[int, ...]
    unit_layers: int
    pool_layers: int
    final_layer: bool
    residual: bool
    dropout: float
    node_features: bool
    edge_channels: int
    recovery_scale: RecoveryScale = "print"

    @property
    def kernel_size(self) -> int:
        return max(self.kernel_sizes)

    @property
    def steps(self) -> tuple[int, ...]:
        """Step of each layer on the way down: L1 unit steps, L2 pooling steps, one optional unit step."""
        return (1,) * self.unit_layers + (self.kernel_size,) * self.pool_layers + (1,) * self.final_layer

    @property
    def band_widths(self) -> tuple[int, ...]:
        """Off-diagonals of E read at the input of each layer and of all layers above it; 0 at the end."""
        widths = [0]
        for step in reversed(self.steps):
            widths.append(widths[-1] * step + self.kernel_size - 1 if self.edge_channels else 0)
        return tuple(reversed(widths))

    @property
    def band_width(self) -> int:
        """Off-diagonals of E that the stack reads."""
        return self.band_widths[0]


class CompressionStack(nn.Module):
    """L1 unit layers, L2 pooling layers, one optional unit layer."""

    def __init__(self, settings: StackSettings) -> None:
        super().__init__()
        self.steps = settings.steps
        self.following_widths = settings.band_widths[1:]
        first_channels = settings.channels if settings.node_features else 0
        self.layers = nn.ModuleList(
            CompressedLayer(
                settings.channels if depth else first_channels,
                settings.channels,
                settings.kernel_sizes,
                step=step,
                edge_channels=settings.edge_channels,
                residual=settings.residual,
                dropout=settings.dropout,
            )
            for depth, step in enumerate(settings.steps)
        )

    def reset_parameters(self) -> None:
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, h_NGC: Tensor, band: Band | None, mask_NG1: Tensor | None = None) -> list[Tensor]:
        """Features of every level, the input first."""
        levels = [h_NGC]
        masks = level_masks(mask_NG1, self.steps)
        for layer, mask, width in zip(self.layers, masks, self.following_widths, strict=False):
            h_NGC, band = layer(h_NGC, band, mask, width)
            levels.append(h_NGC)
        return levels


def level_masks(mask_NG1: Tensor | None, steps: Sequence[int]) -> list[Tensor | None]:
    """Mask of every level: a node set is real if its first member is."""
    masks = [mask_NG1]
    for step in steps:
        last = masks[-1]
        masks.append(None if last is None else last[::step])
    return masks


class RecoveryStack(nn.Module):
    """The transposed layers of a compression stack, last level first."""

    def __init__(self, settings: StackSettings) -> None:
        super().__init__()
        self.steps = settings.steps
        self.layers = nn.ModuleList(
            TransposedLayer(
                settings.channels,
                settings.kernel_size,
                step,
                settings.residual,
                settings.dropout,
                settings.recovery_scale,
            )
            for step in reversed(settings.steps)
        )

    def reset_parameters(self) -> None:
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, levels: Sequence[Tensor], mask_NG1: Tensor | None = None) -> Tensor:
        """Features of the places of the sequence, [N, G, C]."""
        h_NGC = levels[-1]
        masks = level_masks(mask_NG1, self.steps)
        finer = list(zip(levels, masks, strict=True))[:-1]
        for layer, (skip, mask) in zip(self.layers, reversed(finer), strict=True):
            h_NGC = layer(h_NGC, skip)
            if mask is not None:
                h_NGC = h_NGC * mask
        return h_NGC
