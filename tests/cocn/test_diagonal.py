"""Diagonal convolution: a hand-computed case, the oracle, the gradient."""

import pytest
import torch
from torch import Tensor

from cocn import reference
from cocn.diagonal import Band, DiagonalConvolution
from tests.cocn.cases import error

F64 = torch.float64


def band_of(E: Tensor, width: int, symmetric: bool = False) -> Band:
    """[n, n, e] edge features as the band of one sequence."""
    length, _, channels = E.shape
    directions = [E] if symmetric else [E, E.transpose(0, 1)]
    cells = E.new_zeros(length, 1, len(directions) * channels, width)
    for number, half in enumerate(directions):
        for offset in range(1, width + 1):
            diagonal = half.diagonal(offset).t()
            cells[: length - offset, 0, number * channels : (number + 1) * channels, offset - 1] = diagonal
    return Band(cells, len(directions))


def test_by_hand() -> None:
    """K = 2: y_i = v₀h_i + v₁h_{i+1} + w₀₁E[i, i+1] + w₁₀E[i+1, i] + c, zeros past the end."""
    layer = DiagonalConvolution(1, 1, 2)
    with torch.no_grad():
        layer.node_weight.copy_(torch.tensor([1.0, 10.0]).view(2, 1, 1))
        layer.edge_weight.copy_(torch.tensor([100.0, 1000.0]).view(2, 1, 1, 1))
        layer.bias.fill_(0.5)
    E = torch.tensor([[9.0, 1, 7], [2, 9, 3], [7, 4, 9]]).unsqueeze(-1)
    near, _ = band_of(E, 2).split(2)
    y = layer(torch.tensor([1.0, 2, 3]).view(3, 1, 1), near, 2)
    expected = [1 + 20 + 100 + 2000 + 0.5, 2 + 30 + 300 + 4000 + 0.5, 3 + 0.5]
    assert y.flatten().tolist() == expected
    assert layer(torch.tensor([1.0, 2, 3]).view(3, 1, 1), near, 2, step=2).flatten().tolist() == expected[::2]
    assert layer(torch.tensor([-90.0, 2, 3]).view(3, 1, 1), None, 2, activate=True).min() == 0


@pytest.mark.parametrize("chunk_rows", [4, 4096])
@pytest.mark.parametrize(("kernel_size", "step"), [(1, 1), (2, 1), (3, 1), (3, 3), (5, 5)])
@pytest.mark.parametrize(("channels", "edge_channels"), [(3, 1), (3, 2), (0, 2), (3, 0)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_values_and_gradients_equal_the_oracle(
    monkeypatch: pytest.MonkeyPatch,
    kernel_size: int,
    step: int,
    channels: int,
    edge_channels: int,
    symmetric: bool,
    chunk_rows: int,
) -> None:
    monkeypatch.setattr("cocn.windows.CHUNK_ROWS", chunk_rows)
    layer = DiagonalConvolution(channels, 4, kernel_size, edge_channels).double()
    torch.nn.init.normal_(layer.bias)
    E = torch.randn(11, 11, edge_channels, dtype=F64)
    E = (E + E.transpose(0, 1) if symmetric else E).requires_grad_()
    h = torch.randn(11, 1, max(channels, 1), dtype=F64, requires_grad=True)
    band = band_of(E, 10, symmetric)
    near, outer = band.split(kernel_size)
    assert outer.width == 10 - (kernel_size - 1)
    y = torch.relu(layer(h, near, band.num_directions, step))
    assert error(layer(h, near, band.num_directions, step, activate=True), y) == 0
    expected = torch.relu(reference.diagonal_convolution(layer, E, h[:, 0], step))
    assert error(y[:, 0], expected) < 1e-12
    weights = torch.randn_like(expected)
    inputs = [h, *layer.parameters()]
    ours = torch.autograd.grad((y[:, 0] * weights).sum(), inputs, allow_unused=True, retain_graph=True)
    theirs = torch.autograd.grad((expected * weights).sum(), inputs, allow_unused=True, retain_graph=True)
    for one, two in zip(ours, theirs, strict=True):
        if two is not None:
            assert one is not None
            assert error(one, two) < 1e-11
    if edge_channels and kernel_size > 1:
        (one,) = torch.autograd.grad((y[:, 0] * weights).sum(), E)
        (two,) = torch.autograd.grad((expected * weights).sum(), E)
        # A symmetric band reads the upper half for both, so only the sum of both halves is defined.
        halves = (one + one.transpose(0, 1), two + two.transpose(0, 1)) if symmetric else (one, two)
        assert error(*halves) < 1e-11


def test_every_parameter_receives_a_gradient_even_if_nothing_reads_it() -> None:
    """A missing gradient would make workers that average gradients wait forever."""
    for layer, h in (
        (DiagonalConvolution(0, 2, 3), torch.randn(4, 1, 2)),
        (DiagonalConvolution(2, 2, 3, 0), torch.randn(4, 1, 2)),
        (DiagonalConvolution(2, 2, 3), torch.randn(1, 1, 2)),
    ):
        layer(h, None).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected 'kernel_size' to be at least 1"):
        DiagonalConvolution(1, 1, 0)
    with pytest.raises(ValueError, match=r"Expected 'edge_attr' to have 3 channels \(got 1\)"):
        DiagonalConvolution(1, 1, 2, 3)(torch.ones(4, 1, 1), torch.ones(4, 1, 1, 1))


def test_repr_names_the_sizes() -> None:
    assert (
        repr(DiagonalConvolution(3, 8, 5, 2)) == "DiagonalConvolution(3, 8, kernel_size=5, edge_channels=2)"
    )
