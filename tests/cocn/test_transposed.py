"""Transposed layers: from node sets back to their members."""

from typing import get_args

import pytest
import torch

from cocn import reference
from cocn.transposed import RecoveryScale, TransposedConvolution, TransposedLayer
from tests.cocn.cases import error

F64 = torch.float64


def test_convolution_by_hand() -> None:
    """Sets 1, 2, 3 dilated by 2 and read back over a window of 2: each place sees the set that holds it."""
    layer = TransposedConvolution(1, 1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([1.0, 10.0]).view(2, 1, 1))
        layer.bias.fill_(0.5)
    sets = torch.tensor([1.0, 2, 3]).view(3, 1, 1)
    assert layer(sets, 2, 5).flatten().tolist() == [1.5, 10.5, 2.5, 20.5, 3.5]
    assert layer(sets, 1, 3).flatten().tolist() == [1.5, 12.5, 23.5]
    assert torch.equal(layer(sets, 1, 3, negate=True), -layer(sets, 1, 3))


def test_residual_layer_by_hand() -> None:
    """ReLU(AvgPool(Dilat(h))) − TConv(h) + skip, K = s = 2, with a convolution that multiplies by 1."""
    layer = TransposedLayer(1, 2, 2, residual=True, dropout=0.0)
    with torch.no_grad():
        layer.convolution.weight.fill_(1)
        layer.convolution.bias.zero_()
    out = layer(torch.tensor([4.0, -6.0]).view(2, 1, 1), torch.tensor([10.0, 20, 30]).view(3, 1, 1))
    assert out.flatten().tolist() == [2 - 4 + 10, 2 - 4 + 20, 0 + 6 + 30]


def test_recovery_scale_of_the_authors_by_hand() -> None:
    """K = s = 2: a set counts s/K = 1 in place of 1/K = ½; with unit steps both are ½."""
    sets, skip = torch.tensor([4.0, -6.0]).view(2, 1, 1), torch.zeros(3, 1, 1)
    found = {}
    for scale in get_args(RecoveryScale):
        layer = TransposedLayer(1, 2, 2, residual=True, dropout=0.0, recovery_scale=scale)
        torch.nn.init.zeros_(layer.convolution.weight)
        found[scale] = layer(sets, skip).flatten().tolist()
    assert found == {"print": [2, 2, 0], "authors": [4, 4, 0]}
    unit = TransposedLayer(1, 2, 1, residual=True, dropout=0.0, recovery_scale="authors")
    torch.nn.init.zeros_(unit.convolution.weight)
    assert unit(sets, skip[:2]).flatten().tolist() == [2, 0]


def test_another_recovery_scale_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'recovery_scale' to be 'print' or 'authors' \(got 'paper'\)"):
        TransposedLayer(1, 2, 2, True, 0.0, recovery_scale="paper")  # type: ignore[arg-type]


@pytest.mark.parametrize("recovery_scale", get_args(RecoveryScale))
@pytest.mark.parametrize("chunk_rows", [4, 4096])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("kernel_size", "step"), [(1, 1), (2, 1), (3, 3), (5, 1), (5, 5)])
@pytest.mark.parametrize("length", [1, 4, 11])
def test_layers_equal_the_oracle_in_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch,
    length: int,
    kernel_size: int,
    step: int,
    residual: bool,
    chunk_rows: int,
    recovery_scale: RecoveryScale,
) -> None:
    monkeypatch.setattr("cocn.windows.CHUNK_ROWS", chunk_rows)
    layer = TransposedLayer(3, kernel_size, step, residual, 0.0, recovery_scale).double()
    torch.nn.init.normal_(layer.convolution.bias)
    h = torch.randn(-(-length // step), 2, 3, dtype=F64, requires_grad=True)
    skip = torch.randn(length, 2, 3, dtype=F64, requires_grad=True)
    found = layer(h, skip)
    expected = torch.stack([reference.transposed_layer(layer, h[:, g], skip[:, g]) for g in range(2)], dim=1)
    assert error(found, expected) < 1e-12
    weights = torch.randn_like(expected)
    inputs = [h, skip, *layer.parameters()]
    ours, theirs = (torch.autograd.grad((out * weights).sum(), inputs) for out in (found, expected))
    assert all(error(one, two) < 1e-11 for one, two in zip(ours, theirs, strict=True))


def test_repr_names_the_sizes() -> None:
    assert "3, 3, kernel_size=5" in repr(TransposedLayer(3, 5, 5, True, 0.0))
