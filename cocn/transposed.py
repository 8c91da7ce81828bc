"""Transposed layers: from node sets back to their members, for node-level models.

Implements: the residual transposed convolution (the equation after eq:coco-layer-edge)

Legend: N places, G sequences (graphs × heads), C and O channels, K kernel size, M node sets.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from cocn.windows import (
    accumulate_weight_gradient,
    average_back,
    chunks,
    correlate,
    num_windows,
    part,
    spread,
    spread_average_over,
)

RecoveryScale = Literal["print", "authors"]


class TransposedLayer(nn.Module):
    r"""Recover the features of a lower level, with the skip from the matching layer on the way down.

    .. math:: \hat{H}^{(l-1)} = \sigma(\texttt{TConv}(\hat{H}^{(l)})) + H^{(l-1)} \quad\text{(plain)}
    .. math:: \hat{H}^{(l-1)} = \sigma(\texttt{AvgPool}(\texttt{Dilat}(\hat{H}^{(l)})))
              - \texttt{TConv}(\hat{H}^{(l)}) + H^{(l-1)} \quad\text{(residual)}

    Deviation: the paper draws the skip in its network figure and leaves it out of the equation; without it no
    feature of a single node survives the pooling.

    Args:
        channels: C.
        kernel_size: K.
        step: step s of the matching layer on the way down.
        residual: the second equation in place of the first.
        dropout: dropout rate of TConv.
        recovery_scale: weight of a set in the average of the residual layer: 1/K with ``print``, as the paper
            prints it; s/K with ``authors``, as in the code its authors released. They differ where s > 1:
            after dilation a window of K = s holds one set, so 1/K returns it K times weaker.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int,
        step: int,
        residual: bool,
        dropout: float,
        recovery_scale: RecoveryScale = "print",
    ) -> None:
        super().__init__()
        if recovery_scale not in get_args(RecoveryScale):
            raise ValueError(f"Expected 'recovery_scale' to be 'print' or 'authors' (got {recovery_scale!r})")
        self.kernel_size = kernel_size
        self.step = step
        self.residual = residual
        self.gain = float(step) if recovery_scale == "authors" else 1.0
        self.convolution = TransposedConvolution(channels, channels, kernel_size)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        self.convolution.reset_parameters()

    def forward(self, h_MGC: Tensor, skip_NGC: Tensor) -> Tensor:
        """Returns [N, G, C], the shape of the skip."""
        length = skip_NGC.size(0)
        if not self.residual:
            return skip_NGC + self.dropout(torch.relu(self.convolution(h_MGC, self.step, length)))
        removed = self.dropout(self.convolution(h_MGC, self.step, length, negate=True))
        return _Recover.apply(removed, h_MGC, skip_NGC, self.kernel_size, self.step, self.gain)

    def extra_repr(self) -> str:
        return f"step={self.step}, residual={self.residual}"


class TransposedConvolution(nn.Module):
    r"""The adjoint window: dilate by the step, then let each place read the windows that contain it.

    .. math:: y_j = \sum_{m, p:\ m s + p = j} U_p^\top x_m

    Args:
        in_channels: channels of the higher-level node sets.
        out_channels: channels of the recovered node sets.
        kernel_size: K.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel_size, out_channels, in_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        kernel_size, _, in_channels = self.weight.shape
        bound = math.sqrt(3.0 / (kernel_size * in_channels))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def forward(self, x_MGC: Tensor, step: int, length: int, negate: bool = False) -> Tensor:
        """Recover the sequence of this length, or its negative. Returns [length, G, O]."""
        weight, bias = (-self.weight, -self.bias) if negate else (self.weight, self.bias)
        if torch.is_autocast_enabled(x_MGC.device.type):
            dtype = torch.get_autocast_dtype(x_MGC.device.type)
            x_MGC, weight, bias = x_MGC.to(dtype), weight.to(dtype), bias.to(dtype)
        return _Transposed.apply(x_MGC, weight, bias, step, length)

    def extra_repr(self) -> str:
        kernel_size, out_channels, in_channels = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel_size={kernel_size}"


class _Transposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, step, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        ctx.step = step
        return spread(x, weight, step, length, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = correlate(grad, weight, ctx.step) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight)
        for windows in chunks(x.size(0), x):
            accumulate_weight_gradient(grad_weight, grad, part(x, windows), windows, ctx.step)
        return grad_x, grad_weight, grad.sum((0, 1)), None, None


class _Recover(torch.autograd.Function):
    """removed + ReLU(gain · AvgPool(Dilat(h))) + skip, written over `removed`."""

    @staticmethod
    def forward(ctx, removed, h, skip, kernel_size, step, gain):  # type: ignore[no-untyped-def]
        ctx.mark_dirty(removed)
        ctx.kernel_size, ctx.step, ctx.gain = kernel_size, step, gain
        active = torch.empty_like(removed, dtype=torch.bool)
        for places in chunks(removed.size(0), removed):
            target = part(removed, places)
            members = torch.zeros_like(target)
            spread_average_over(members, h, kernel_size, places, step, gain)
            torch.gt(members, 0, out=part(active, places))
            target.add_(members.relu_()).add_(part(skip, places))
        ctx.save_for_backward(active)
        return removed

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        (active,) = ctx.saved_tensors
        grad_h = grad.new_zeros(num_windows(grad.size(0), ctx.step), *grad.shape[1:])
        for places in chunks(grad.size(0), grad):
            inner = part(grad, places) * part(active, places)
            average_back(grad_h, inner, ctx.kernel_size, places, ctx.step, ctx.gain)
        return grad, grad_h, grad, None, None, None
