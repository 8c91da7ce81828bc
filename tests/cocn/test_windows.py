"""Windows in chunks against loops over windows and taps."""

import pytest
import torch
from torch import Tensor

from cocn.windows import (
    add_average,
    average_back,
    average_spread,
    average_windows,
    chunks,
    correlate,
    num_windows,
    spread,
)

SHAPES = [(1, 1, 1), (3, 5, 1), (3, 5, 5), (11, 3, 1), (11, 3, 3), (12, 3, 3), (11, 4, 2)]


@pytest.fixture(autouse=True, params=[4, 4096])
def _chunk_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cocn.windows.CHUNK_ROWS", request.param)


def loop_correlate(x: Tensor, weight: Tensor, step: int) -> Tensor:
    y = x.new_zeros(num_windows(x.size(0), step), x.size(1), weight.size(2))
    for window in range(y.size(0)):
        for tap in range(weight.size(0)):
            if window * step + tap < x.size(0):
                y[window] += x[window * step + tap] @ weight[tap]
    return y


def test_windows_by_hand() -> None:
    """Places 1 2 3 4 5, taps 1 and 10: neighbours pair up, and the last window has one place only."""
    x = torch.arange(1.0, 6.0).view(5, 1, 1)
    weight = torch.tensor([1.0, 10.0]).view(2, 1, 1)
    assert correlate(x, weight, 1).flatten().tolist() == [21, 32, 43, 54, 5]
    assert correlate(x, weight, 2).flatten().tolist() == [21, 43, 5]
    assert spread(torch.ones(3, 1, 1), weight, 2, 5).flatten().tolist() == [1, 10, 1, 10, 1]
    assert spread(torch.ones(5, 1, 1), weight, 1, 5, torch.tensor([0.5])).flatten().tolist() == [1.5] + 4 * [
        11.5
    ]
    assert average_windows(x, 2, 2).flatten().tolist() == [1.5, 3.5, 2.5]
    assert average_spread(x, 2, 1, 5).flatten().tolist() == [0.5, 1.5, 2.5, 3.5, 4.5]


@pytest.mark.parametrize(("length", "kernel_size", "step"), SHAPES)
def test_correlate_equals_a_loop_and_spread_is_its_adjoint(length: int, kernel_size: int, step: int) -> None:
    x = torch.randn(length, 2, 3, dtype=torch.float64)
    weight = torch.randn(kernel_size, 3, 4, dtype=torch.float64)
    y = correlate(x, weight, step)
    torch.testing.assert_close(y, loop_correlate(x, weight, step))
    other = torch.randn_like(y)
    left, right = (y * other).sum(), (x * spread(other, weight, step, length)).sum()
    torch.testing.assert_close(left, right)


@pytest.mark.parametrize(("length", "kernel_size", "step"), SHAPES)
def test_averages_equal_a_loop_and_their_adjoints(length: int, kernel_size: int, step: int) -> None:
    x = torch.randn(length, 2, 3, dtype=torch.float64)
    identity = torch.eye(3, dtype=torch.float64).expand(kernel_size, 3, 3) / kernel_size
    y = average_windows(x, kernel_size, step)
    torch.testing.assert_close(y, loop_correlate(x, identity, step))
    other = torch.randn_like(y)
    members = average_spread(other, kernel_size, step, length)
    torch.testing.assert_close((y * other).sum(), (x * members).sum())
    back = torch.zeros_like(y)
    for places in chunks(length, x):
        average_back(back, x[places.start : places.stop], kernel_size, places, step)
    torch.testing.assert_close(back, y)


@pytest.mark.parametrize(("length", "kernel_size", "step"), SHAPES)
def test_average_gradient(length: int, kernel_size: int, step: int) -> None:
    x = torch.randn(length, 1, 2, dtype=torch.float64, requires_grad=True)
    y = torch.randn(num_windows(length, step), 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: add_average(y.clone(), x, kernel_size, step), (x, y))


def test_chunks_cover_everything_once() -> None:
    places = [place for chunk in chunks(103, torch.empty(103, 3, 2)) for place in chunk]
    assert places == list(range(103))
    assert list(chunks(0, torch.empty(0, 3, 2))) == []
    assert list(chunks(103, torch.empty(103, 3, 2, device="meta"))) == [range(103)]
