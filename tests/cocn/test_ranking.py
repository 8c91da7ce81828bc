"""Ranks and their two surrogate gradients."""

import math

import pytest
import torch

from cocn import reference
from cocn.ranking import RankGradient, rank, window_ranks

F64 = torch.float64


def positions(*values: float) -> torch.Tensor:
    return torch.tensor([[values]], dtype=F64, requires_grad=True)


def test_ranks_ascend_and_ties_keep_their_order() -> None:
    ranks = rank(positions(0.3, -1.0, 2.0, 0.3))
    assert ranks.rank_BHN.flatten().tolist() == [1, 0, 3, 2]
    assert ranks.order_BHN.flatten().tolist() == [1, 0, 3, 2]
    assert ranks.rank_grad_BHN.flatten().tolist() == [1.0, 0.0, 3.0, 2.0]


def test_padding_stands_last_and_receives_nothing() -> None:
    given = positions(5.0, 4.0, -9.0)
    ranks = rank(given, torch.tensor([2]))
    assert ranks.order_BHN.flatten().tolist() == [1, 0, 2]
    ranks.rank_grad_BHN.sum().backward()
    assert given.grad is not None
    assert given.grad.flatten()[2] == 0


def test_pairwise_gradient_by_hand() -> None:
    """σ(ln 3) = ¾, so the slope at a distance of ln 3 is 3/16; the first node has none before it."""
    given = positions(0.0, math.log(3.0))
    rank(given).rank_grad_BHN.backward(torch.tensor([[[5.0, 2.0]]], dtype=F64))
    torch.testing.assert_close(given.grad, torch.tensor([[[-0.375, 0.375]]], dtype=F64))


def test_taylor_gradient_by_hand() -> None:
    """¼(r_j g_j − Σ_{r_i > r_j} g_i) with ranks 2, 0, 1, 3 and g = 1, 2, 4, 8."""
    given = positions(0.5, -2.0, 0.1, 7.0)
    ranks = rank(given, gradient="taylor")
    ranks.rank_grad_BHN.backward(torch.tensor([[[1.0, 2.0, 4.0, 8.0]]], dtype=F64))
    expected = [(2 * 1 - 8) / 4, (0 - 1 - 4 - 8) / 4, (1 * 4 - 1 - 8) / 4, (3 * 8) / 4]
    torch.testing.assert_close(given.grad, torch.tensor([[expected]], dtype=F64))


@pytest.mark.parametrize("gradient", ["pairwise", "taylor"])
@pytest.mark.parametrize("ties", [False, True])
def test_gradients_equal_the_oracle(gradient: RankGradient, ties: bool) -> None:
    given = torch.randn(2, 3, 9, dtype=F64)
    if ties:
        given = (2 * given).round() / 2
    lengths = torch.tensor([9, 6])
    given.requires_grad_()
    weights = torch.randn(2, 3, 9, dtype=F64)
    ours = rank(given, lengths, gradient).rank_grad_BHN
    found = torch.autograd.grad((ours * weights)[0].sum() + (ours * weights)[1, :, :6].sum(), given)[0]
    for graph, length in enumerate(lengths):
        for head in range(3):
            r_A = given[graph, head, :length]
            r = reference.absolute_positions(r_A, gradient)
            assert torch.equal(ours[graph, head, :length].detach(), r.detach())
            (wanted,) = torch.autograd.grad((r * weights[graph, head, :length]).sum(), r_A)
            torch.testing.assert_close(found[graph, head, :length], wanted, atol=1e-12, rtol=1e-12)
    assert not found[1, :, 6:].any()


def test_normalisation_divides_by_the_number_of_nodes() -> None:
    lengths = torch.tensor([8, 5])
    weights = torch.randn(2, 1, 8, dtype=F64)
    found = []
    for normalise in (False, True):
        given = torch.arange(16.0, dtype=F64).view(2, 1, 8).sin().requires_grad_()
        ranks = rank(given, lengths, "taylor", normalise)
        found += torch.autograd.grad((ranks.rank_grad_BHN * weights).sum(), given)
    torch.testing.assert_close(found[0], found[1] * lengths[:, None, None])


def test_normalised_taylor_gradient_does_not_grow_with_the_graph() -> None:
    """A sum over all pairs makes the plain gradient of one node grow as n; the stated choice undoes that."""
    sizes = []
    for num_nodes in (100, 1600):
        given = torch.linspace(-1, 1, num_nodes, dtype=F64).view(1, 1, -1).requires_grad_()
        ranks = rank(given, gradient="taylor", normalise=True).rank_grad_BHN
        # The same smooth signal on every size: a node's share of the loss does not depend on n.
        signal = torch.linspace(0, 3, num_nodes, dtype=F64).sin()
        (gradient,) = torch.autograd.grad((ranks * signal).sum(), given)
        sizes.append(float(gradient.abs().mean()))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.05)


def test_segments_are_ranked_as_they_stand() -> None:
    """Across the wrap values fall, but the first place stays first, and distance alone makes the slope."""
    rising = torch.tensor([[[0.0, math.log(3.0)]]], dtype=F64, requires_grad=True)
    falling = torch.tensor([[[math.log(3.0), 0.0]]], dtype=F64, requires_grad=True)
    for given in (rising, falling):
        ranks = window_ranks(given)
        assert ranks.flatten().tolist() == [0.0, 1.0]
        ranks.backward(torch.tensor([[[5.0, 2.0]]], dtype=F64))
        torch.testing.assert_close(given.grad, torch.tensor([[[-0.375, 0.375]]], dtype=F64))


def test_window_ranks_equal_ranks_where_values_rise() -> None:
    given = torch.randn(4, 2, 6, dtype=F64).sort(-1).values.requires_grad_()
    weights = torch.randn(4, 2, 6, dtype=F64)
    gradients = [
        torch.autograd.grad((ranks * weights).sum(), given)[0]
        for ranks in (window_ranks(given), rank(given).rank_grad_BHN)
    ]
    torch.testing.assert_close(*gradients)
