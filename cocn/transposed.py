"""Transposed layers: from node sets back to their members, for node-level models.

Implements: the residual transposed convolution (the equation after eq:coco-layer-edge)

Legend: N places, G sequences (graphs × heads), C and O channels, K kernel size, M node sets.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cocn.windows import average_spread, correlate, spread, weight_gradient


class TransposedLayer(nn.Module):
    r"""Recover the features of a lower level, with the skip from the matching layer on the way down.

    .. math:: \hat{H}^{(l-1)} = \sigma(\texttt{TConv}(\hat{H}^{(l)})) + H^{(l-1)} \quad\text{(plain)}
    .. math:: \hat{H}^{(l-1)} = \sigma(\texttt{AvgPool}(\texttt{Dilat}(\hat{H}^{(l)})))
              - \texttt{TConv}(\hat{H}^{(l)}) + H^{(l-1)} \quad\text{(residual)}

    Deviation: the paper draws the skip in its network figure and leaves it out of the equation; without it no
    feature of a single node survives the pooling.
    """

    def __init__(self, channels: int, kernel_size: int, step: int, residual: bool, dropout: float) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.step = step
        self.residual = residual
        self.convolution = TransposedConvolution(channels, channels, kernel_size)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        self.convolution.reset_parameters()

    def forward(self, h_MGC: Tensor, skip_NGC: Tensor) -> Tensor:
        """Returns [N, G, C], the shape of the skip."""
        length = skip_NGC.size(0)
        recovered = self.convolution(h_MGC, self.step, length)
        if not self.residual:
            return skip_NGC + self.dropout(torch.relu(recovered))
        spread_out = torch.relu(average_spread(h_MGC, self.kernel_size, self.step, length))
        return skip_NGC + spread_out - self.dropout(recovered)

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

    def forward(self, x_MGC: Tensor, step: int, length: int) -> Tensor:
        """Recover the sequence of this length. Returns [length, G, O]."""
        weight: Tensor = self.weight
        if torch.is_autocast_enabled(x_MGC.device.type):
            dtype = torch.get_autocast_dtype(x_MGC.device.type)
            x_MGC, weight = x_MGC.to(dtype), weight.to(dtype)
        return _Transposed.apply(x_MGC, weight, step, length) + self.bias

    def extra_repr(self) -> str:
        kernel_size, out_channels, in_channels = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel_size={kernel_size}"


class _Transposed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, step, length):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, weight)
        ctx.step = step
        return spread(x.contiguous(), weight, step, length)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = correlate(grad, weight, ctx.step)[: x.size(0)] if ctx.needs_input_grad[0] else None
        return grad_x, weight_gradient(grad, x.contiguous(), weight, ctx.step), None, None
