"""Gather, gate and circular filter against the n×n permutation matrix."""

import math

import pytest
import torch

from cocn import reference
from cocn.permutation import (
    circulant_matrix,
    circular_filter,
    gate,
    gather_sequence,
    linear_scan,
    num_taps,
    scatter_sequence,
)
from cocn.ranking import rank

F64 = torch.float64


def test_relaxed_permutation_by_hand() -> None:
    """Ranks 2, 0, 1 and a = ½: column j is 1 at row r_j and halves with each step down, around the end."""
    matrix = reference.permutation_matrix(torch.tensor([2.0, 0.0, 1.0], dtype=F64), math.log(2.0))
    expected = [[0.5, 1.0, 0.25], [0.25, 0.5, 1.0], [1.0, 0.25, 0.5]]
    torch.testing.assert_close(matrix, torch.tensor(expected, dtype=F64))


def test_circulant_and_filter_by_hand() -> None:
    expected = torch.tensor([[1, 1 / 8, 1 / 4, 1 / 2]], dtype=F64)
    circulant = circulant_matrix(4, math.log(2.0), expected)
    torch.testing.assert_close(circulant[:1], expected)
    impulse = torch.eye(4, dtype=F64)[:, 1].view(4, 1, 1)
    filtered = circular_filter(impulse, math.log(2.0)).flatten()
    torch.testing.assert_close(filtered, torch.tensor([1 / 8, 1, 1 / 2, 1 / 4], dtype=F64))
    filtered = circular_filter(impulse, math.log(2.0), transpose=True).flatten()
    torch.testing.assert_close(filtered, torch.tensor([1 / 2, 1, 1 / 8, 1 / 4], dtype=F64))


def test_the_standard_permutation_filters_nothing() -> None:
    x = torch.randn(5, 2, 3)
    assert circular_filter(x, None) is x


@pytest.mark.parametrize("tau", [0.001, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("length", [1, 2, 31, 64, 65, 96, 97, 333, 1100])
@pytest.mark.parametrize("transpose", [False, True])
def test_filter_equals_the_circulant(length: int, tau: float, transpose: bool) -> None:
    x = torch.randn(length, 2, 3, dtype=F64)
    circulant = circulant_matrix(length, tau, x)
    expected = torch.einsum("ij,jgc->igc", circulant.t() if transpose else circulant, x)
    torch.testing.assert_close(circular_filter(x, tau, transpose=transpose), expected, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("tau", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("transpose", [False, True])
def test_padded_filter_has_the_period_of_each_sequence(
    tau: float, transpose: bool, dtype: torch.dtype
) -> None:
    lengths = torch.tensor([70, 3, 1, 41])
    x = torch.randn(70, 4, 2, dtype=dtype, requires_grad=True)
    inside = torch.arange(70)[:, None] < lengths
    weights = torch.randn(70, 4, 2, dtype=dtype)
    filtered = circular_filter(x * inside.unsqueeze(-1), tau, lengths, transpose)
    tolerance = 1e-11 if dtype == F64 else 1e-4
    (gradient,) = torch.autograd.grad((filtered * weights).sum(), x)
    for sequence, length in enumerate(lengths.tolist()):
        circulant = circulant_matrix(length, tau, x)
        circulant = circulant.t() if transpose else circulant
        for found, given, matrix in (
            (filtered, x, circulant),
            # Weights on padded places must not leak back.
            (gradient, weights, circulant.t()),
        ):
            expected = matrix @ given[:length, sequence]
            torch.testing.assert_close(found[:length, sequence], expected, atol=tolerance, rtol=tolerance)
            assert not found[length:, sequence].any()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 32, 33, 100, 1056, 1057])
def test_scan_equals_its_recursion(length: int, reverse: bool) -> None:
    x = torch.randn(length, 2, 1, dtype=F64)
    expected = x.flip(0).clone() if reverse else x.clone()
    for place in range(1, length):
        expected[place] += math.exp(-0.02) * expected[place - 1]
    expected = expected.flip(0) if reverse else expected
    torch.testing.assert_close(linear_scan(x, 0.02, reverse), expected, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("tau", [0.3, 5.0])
@pytest.mark.parametrize("length", [12, 70])
def test_filter_gradient(length: int, tau: float) -> None:
    x = torch.randn(length, 1, 2, dtype=F64, requires_grad=True)
    for transpose in (False, True):
        assert torch.autograd.gradcheck(lambda x, t=transpose: circular_filter(x, tau, None, t), x)


def test_gate_is_one_and_its_gradient_tau() -> None:
    ranks = torch.tensor([3.0, 1.0], requires_grad=True)
    for tau, slope in ((2.5, 2.5), (None, 1.0)):
        gates = gate(ranks, tau)
        assert gates.tolist() == [1.0, 1.0]
        (gradient,) = torch.autograd.grad(gates.sum(), ranks)
        assert gradient.tolist() == [slope, slope]


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0, None])
def test_factorised_permutation_equals_the_matrix_in_values_and_gradients(tau: float | None) -> None:
    num_nodes, heads = 7, 3
    r_A = torch.randn(1, heads, num_nodes, dtype=F64, requires_grad=True)
    x = torch.randn(1, num_nodes, 4, dtype=F64, requires_grad=True)
    h = torch.randn(num_nodes, heads, 4, dtype=F64, requires_grad=True)
    weights = torch.randn(num_nodes, heads, 4, dtype=F64)
    ranks = rank(r_A)
    gates = gate(ranks.rank_grad_BHN, tau)
    forth = circular_filter(gather_sequence(x, ranks.order_BHN, ranks.rank_BHN, gates), tau)
    back = circular_filter(h, tau, transpose=True)
    back = scatter_sequence(back, ranks.rank_BHN, torch.arange(num_nodes), gates)
    matrices = [
        reference.permutation_matrix(reference.absolute_positions(one), tau) for one in r_A.squeeze(0)
    ]
    expected_forth = torch.stack([P @ x[0] for P in matrices], dim=1)
    expected_back = torch.stack([P.t() @ h[:, head] for head, P in enumerate(matrices)], dim=1)
    for found, expected in ((forth, expected_forth), (back, expected_back)):
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
        ours, theirs = (
            torch.autograd.grad((out * weights).sum(), (r_A, x, h), allow_unused=True, retain_graph=True)
            for out in (found, expected)
        )
        for one, two in zip(ours, theirs, strict=True):
            assert (one is None) == (two is None)
            if one is not None:
                torch.testing.assert_close(one, two, atol=1e-11, rtol=1e-11)


def test_scatter_takes_nodes_out_of_a_padded_batch() -> None:
    """Two graphs of 3 and 2 nodes; rows come back in the requested order."""
    h = torch.arange(6, dtype=F64).view(3, 2, 1).requires_grad_()
    ranks = torch.tensor([[[2, 0, 1]], [[1, 0, 2]]])
    slots = torch.tensor([3, 0, 1, 2, 4])
    gates = torch.ones(2, 1, 3, dtype=F64, requires_grad=True)
    rows = scatter_sequence(h, ranks, slots, gates)
    assert rows.flatten().tolist() == [3, 4, 0, 2, 1]
    rows.backward(torch.tensor([1.0, 2, 3, 4, 5], dtype=F64).view(5, 1, 1))
    assert h.grad is not None
    assert h.grad.flatten().tolist() == [3, 5, 4, 1, 2, 0]
    assert gates.grad is not None
    assert gates.grad.flatten().tolist() == [8, 0, 8, 3, 5, 0]


def test_taps_reach_the_resolution_of_the_type() -> None:
    assert num_taps(None, torch.float32) == 0
    assert [num_taps(tau, torch.float32) for tau in (0.1, 1.0, 10.0)] == [160, 16, 2]
    assert math.exp(-num_taps(1.0, F64)) < torch.finfo(F64).eps
