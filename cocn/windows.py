"""Windows along a sequence as plain matrix products: the arithmetic behind every convolution here.

Sequences are stored place-major, [N, G, C]: the rows that one tap of a kernel reads are then one contiguous
block, so a window of K taps is K accumulating GEMMs with no padding and no unfolded copy, and the end of the
sequence is padded with zeros by reading fewer rows. Long sequences are worked on in chunks that fit the
cache, so that K taps cost one pass over memory.

Legend: N places, G sequences (graphs × heads), C and O channels, K taps, M ⌈N/step⌉ windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Rows (places × sequences) of a chunk on CPU; at 64 channels it takes 1 MB of cache.
CHUNK_ROWS = 4096


def num_windows(length: int, step: int) -> int:
    """⌈length/step⌉: windows start at 0, step, 2·step, … below the length."""
    return -(-length // step)


def chunks(count: int, like_NGC: Tensor) -> Iterator[range]:
    """Consecutive ranges of places or windows; all at once on devices that need no cache blocking."""
    size = max(CHUNK_ROWS // max(like_NGC.size(1), 1), 1) if like_NGC.device.type == "cpu" else max(count, 1)
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def part(x: Tensor, chunk: range) -> Tensor:
    return x[chunk.start : chunk.stop]


def rows_of(x: Tensor) -> Tensor:
    return x.reshape(-1, x.size(-1))


def read_tap(x: Tensor, windows: range, tap: int, step: int) -> Tensor:
    """x_{m·step+tap} for the windows m of a chunk; fewer rows where windows reach past the end."""
    return x[windows.start * step + tap : (windows.stop - 1) * step + tap + 1 : step]


def _windows_over(places: range, tap: int, step: int) -> tuple[int, int]:
    """First window m whose tap falls into a chunk of places, and the place in the chunk where it falls."""
    window = max(-((tap - places.start) // step), 0)
    return window, window * step + tap - places.start


def correlate(x_NGC: Tensor, weight_KCO: Tensor, step: int) -> Tensor:
    r"""y_m = Σ_p x_{m·step+p} W_p, zeros past the end. Returns [M, G, O]; no autograd."""
    length, sequences, _ = x_NGC.shape
    y = x_NGC.new_empty(num_windows(length, step), sequences, weight_KCO.size(-1))
    for windows in chunks(y.size(0), y):
        accumulate_taps(part(y, windows).zero_(), x_NGC, weight_KCO, windows, step)
    return y


def accumulate_taps(y_WGO: Tensor, x_NGC: Tensor, weight_KCO: Tensor, windows: range, step: int) -> None:
    """Add what a chunk of windows reads of x to y, in place."""
    for tap, weight in enumerate(weight_KCO):
        rows = read_tap(x_NGC, windows, tap, step)
        rows_of(y_WGO[: rows.size(0)]).addmm_(rows_of(rows), weight)


def spread(y_MGO: Tensor, weight_KCO: Tensor, step: int, length: int, bias_C: Tensor | None = None) -> Tensor:
    """Adjoint of :func:`correlate`, Σ_{m,p: m·step+p=n} y_m W_pᵀ + bias: [length, G, C]; no autograd."""
    x = y_MGO.new_empty(length, y_MGO.size(1), weight_KCO.size(1))
    for places in chunks(length, x):
        target = part(x, places)
        target.zero_() if bias_C is None else target.copy_(bias_C.expand_as(target))
        for tap, weight in enumerate(weight_KCO):
            window, place = _windows_over(places, tap, step)
            rows = target[place::step]
            source = rows_of(y_MGO[window : window + rows.size(0)])
            if step == 1:
                rows_of(rows).addmm_(source, weight.t())
            else:
                rows.add_((source @ weight.t()).view_as(rows))
    return x


def accumulate_weight_gradient(
    grad_KCO: Tensor, x_NGC: Tensor, grad_WGO: Tensor, windows: range, step: int
) -> None:
    """Add what a chunk of windows contributes to the gradient of :func:`correlate` in its weights."""
    for tap, total in enumerate(grad_KCO):
        rows = read_tap(x_NGC, windows, tap, step)
        total.addmm_(rows_of(rows).t(), rows_of(grad_WGO[: rows.size(0)]))


def average_windows(x_NGC: Tensor, kernel_size: int, step: int) -> Tensor:
    """AvgPool: mean over each window, zeros past the end counted. Returns [M, G, C]."""
    zeros = x_NGC.new_zeros(num_windows(x_NGC.size(0), step), *x_NGC.shape[1:])
    return add_average(zeros, x_NGC, kernel_size, step)


def add_average(y_MGC: Tensor, x_NGC: Tensor, kernel_size: int, step: int) -> Tensor:
    """y + AvgPool(x), written over y."""
    return _AddAverage.apply(y_MGC, x_NGC, kernel_size, step)


def average_spread(y_MGC: Tensor, kernel_size: int, step: int, length: int) -> Tensor:
    """Adjoint of :func:`average_windows`, which is AvgPool(Dilat(y)). Returns [length, G, C]; no autograd."""
    x = y_MGC.new_empty(length, *y_MGC.shape[1:])
    for places in chunks(length, x):
        spread_average_over(part(x, places).zero_(), y_MGC, kernel_size, places, step)
    return x


def spread_average_over(
    target: Tensor, y_MGC: Tensor, kernel_size: int, places: range, step: int, gain: float = 1.0
) -> None:
    """Add gain · AvgPool(Dilat(y)) at a chunk of places, in place."""
    for tap in range(kernel_size):
        window, place = _windows_over(places, tap, step)
        rows = target[place::step]
        rows.add_(y_MGC[window : window + rows.size(0)], alpha=gain / kernel_size)


def average_back(
    y_MGC: Tensor, target_PGC: Tensor, kernel_size: int, places: range, step: int, gain: float = 1.0
) -> None:
    """Adjoint of :func:`spread_average_over`: add the gradient of a chunk of places, in place."""
    for tap in range(kernel_size):
        window, place = _windows_over(places, tap, step)
        rows = target_PGC[place::step]
        y_MGC[window : window + rows.size(0)].add_(rows, alpha=gain / kernel_size)


def add_average_to(target: Tensor, x_NGC: Tensor, kernel_size: int, windows: range, step: int) -> None:
    """Add AvgPool(x) at a chunk of windows, in place."""
    for tap in range(kernel_size):
        rows = read_tap(x_NGC, windows, tap, step)
        target[: rows.size(0)].add_(rows, alpha=1 / kernel_size)


class _AddAverage(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, x, kernel_size, step):  # type: ignore[no-untyped-def]
        ctx.mark_dirty(y)
        ctx.kernel_size, ctx.step, ctx.length = kernel_size, step, x.size(0)
        for windows in chunks(y.size(0), y):
            add_average_to(part(y, windows), x, kernel_size, windows, step)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        grad_x = None
        if ctx.needs_input_grad[1]:
            grad_x = average_spread(grad, ctx.kernel_size, ctx.step, ctx.length)
        return grad, grad_x, None, None
