"""Compression of E, residual and inception layers."""

import pytest
import torch
from torch import Tensor

from cocn import reference
from cocn.compressed import CompressedLayer, read_and_compress
from cocn.diagonal import Band
from tests.cocn.cases import error
from tests.cocn.test_diagonal import band_of
from tests.cocn.test_edges import as_matrix

F64 = torch.float64


def off_diagonal(E: Tensor) -> Tensor:
    return E - torch.diag(E.diagonal())


def test_tri_by_hand() -> None:
    """K = 2 drops the first off-diagonals: upper[i, j] = E[i, j+1], lower[i, j] = E[i+1, j]."""
    E = torch.arange(16.0).view(4, 4, 1)
    expected = torch.tensor([[0.0, 2, 3, 0], [8, 0, 7, 0], [12, 13, 0, 0], [0, 0, 0, 0]])
    assert torch.equal(reference.tri(E, 2)[..., 0], expected)
    _, following = read_and_compress(band_of(E, 3), 2, 1, 2)
    assert following is not None
    assert torch.equal(as_matrix(following, 0), expected)


def test_max_pool_by_hand() -> None:
    """Blocks of 2×2 of a 3×3 matrix, zeros past the end: the last block holds one cell and zeros."""
    E = torch.tensor([[1.0, 2, -5], [3, 4, -6], [-7, 8, 9]]).unsqueeze(-1)
    expected = torch.tensor([[4.0, 0], [8, 9]])
    assert torch.equal(reference.max_pool(E, 2, 2)[..., 0], expected)
    _, following = read_and_compress(band_of(E, 2), 2, 2, 1)
    assert following is not None
    assert torch.equal(as_matrix(following, 0), off_diagonal(expected))


@pytest.mark.parametrize("chunk_rows", [3, 4096])
@pytest.mark.parametrize("kernel_size", [2, 3, 5])
@pytest.mark.parametrize("length", [6, 12, 13, 17])
def test_compression_equals_the_oracle(
    monkeypatch: pytest.MonkeyPatch, length: int, kernel_size: int, chunk_rows: int
) -> None:
    monkeypatch.setattr("cocn.windows.CHUNK_ROWS", chunk_rows)
    E = torch.randn(length, length, 2, dtype=F64, requires_grad=True)
    band = band_of(E, length - 1)
    for step in (1, kernel_size):
        near, following = read_and_compress(band, kernel_size, step, length)
        assert near.size(-1) == min(kernel_size - 1, length - 1)
        assert following is not None
        whole = reference.tri(E, kernel_size) if step == 1 else reference.max_pool(E, kernel_size, step)
        for channel in range(2):
            expected = off_diagonal(whole[..., channel])
            found = as_matrix(following, 0, channel)
            # A unit step leaves as many places, the last of which no window reaches.
            assert error(found[: expected.size(0), : expected.size(0)], expected) == 0
            weights = torch.randn_like(expected)
            ours, theirs = (
                torch.autograd.grad((out * weights).sum(), E, retain_graph=True)[0]
                for out in (found, expected)
            )
            assert error(ours, theirs) < 1e-12


def test_tied_cells_share_the_gradient() -> None:
    cells = torch.zeros(6, 1, 1, 5, dtype=F64)
    cells[0, 0, 0, 1] = cells[1, 0, 0, 1] = 7
    cells.requires_grad_()
    _, following = read_and_compress(Band(cells, 1), 2, 2, 1)
    assert following is not None
    assert following.cells[0, 0, 0, 0] == 7
    (gradient,) = torch.autograd.grad(following.cells[0].sum(), cells)
    assert gradient[0, 0, 0, 1] == gradient[1, 0, 0, 1] == 0.5
    assert gradient.sum() == 1


def test_nothing_is_compressed_for_nobody() -> None:
    assert read_and_compress(Band(torch.ones(6, 1, 1, 5), 1), 2, 2, 0)[1] is None


@pytest.mark.parametrize("step", [1, 3])
def test_residual_by_hand(step: int) -> None:
    """With a convolution of zeros and bias −1, the layer is the average of the members."""
    layer = CompressedLayer(1, 1, [3], step, residual=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.branches[0].bias.fill_(-1)
    out, _ = layer(torch.tensor([3.0, 6, 9, 12]).view(4, 1, 1), None)
    assert out.flatten().tolist() == [6.0, 9.0, 7.0, 4.0][::step]


def test_inception_by_hand() -> None:
    """A kernel of 1 doubles, pooled over two members; a kernel of 2 adds neighbours; the mean of both."""
    layer = CompressedLayer(1, 1, [1, 2], edge_channels=0)
    with torch.no_grad():
        layer.branches[0].node_weight.fill_(2)
        layer.branches[1].node_weight.fill_(1)
    out, _ = layer(torch.tensor([1.0, 2, 3]).view(3, 1, 1), None)
    assert out.flatten().tolist() == [(3 + 3) / 2, (5 + 5) / 2, (3 + 3) / 2]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kernel_sizes", [[3], [2, 3], [5, 3, 2]])
@pytest.mark.parametrize("pooling", [False, True])
def test_layers_equal_the_oracle(kernel_sizes: list[int], pooling: bool, residual: bool) -> None:
    step = max(kernel_sizes) if pooling else 1
    layer = CompressedLayer(4, 4, kernel_sizes, step, residual=residual).double()
    E = torch.randn(13, 13, 1, dtype=F64)
    h = torch.randn(13, 1, 4, dtype=F64, requires_grad=True)
    found, _ = layer(h, band_of(E, 12))
    expected, _ = reference.compressed_layer(layer, E, h[:, 0])
    assert error(found[:, 0], expected) < 1e-12
    weights = torch.randn_like(expected)
    inputs = [h, *layer.parameters()]
    ours, theirs = (torch.autograd.grad((out * weights).sum(), inputs) for out in (found[:, 0], expected))
    assert all(error(one, two) < 1e-11 for one, two in zip(ours, theirs, strict=True))


def test_dropout_spares_the_residual() -> None:
    layer = CompressedLayer(2, 2, [2], residual=True, dropout=1.0)
    h = torch.rand(5, 1, 2)
    expected = reference.average_pool(h[:, 0], 2, 1)
    torch.testing.assert_close(layer(h, None)[0][:, 0], expected)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected 'step' to be 1 or the kernel size 3 \(got 2\)"):
        CompressedLayer(4, 4, [3], step=2)
    with pytest.raises(
        ValueError, match=r"Expected 'in_channels' to equal 'out_channels' of a residual layer"
    ):
        CompressedLayer(3, 4, [3], residual=True)
