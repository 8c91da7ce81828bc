"""Approximate positions: regression, propagation, and the structural solution."""

import pytest
import torch

from cocn.positions import (
    DISTANCE_SCALE,
    PositionRegression,
    hop_distances,
    implicit_positions,
    structural_positions,
)
from cocn.propagation import normalised_adjacency
from tests.conftest import both_directions

F64 = torch.float64
PATH = torch.from_numpy(both_directions([(0, 1), (1, 2)]))
KITE = torch.from_numpy(both_directions([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]))


def linear_regression(propagation: str, smoothness: int) -> PositionRegression:
    """MLP(x) = ReLU(x) for one feature and one head."""
    regression = PositionRegression(1, 1, 1, smoothness, propagation)  # type: ignore[arg-type]
    with torch.no_grad():
        for linear in (regression.hidden, regression.out):
            linear.weight.fill_(1)
            linear.bias.zero_()
    return regression


def test_explicit_positions_by_hand() -> None:
    """On the path 0–1–2 with self-loops, degrees 2, 3, 2: Ã₀₀ = ½, Ã₀₁ = 1/√6, Ã₁₁ = ⅓, Ã₂₂ = ½."""
    adjacency = normalised_adjacency(PATH, 3)
    x = torch.tensor([[6.0], [-6.0], [0.0]])
    root = 6**0.5
    after = linear_regression("after", 1)(x, adjacency)
    torch.testing.assert_close(after, torch.tensor([[3.0], [6 / root], [0.0]]))
    before = linear_regression("before", 1)(x, adjacency)
    expected = [[3 - 6 / root], [6 / root - 2], [-6 / root]]
    torch.testing.assert_close(before, torch.tensor(expected).relu())
    twice = linear_regression("after", 2)(x, adjacency)
    torch.testing.assert_close(twice, adjacency.propagate(after))


def test_rows_that_are_propagated_already_need_no_graph() -> None:
    regression = PositionRegression(3, 2, 4, smoothness=2, propagation="before")
    adjacency = normalised_adjacency(KITE, 6)
    x = torch.randn(6, 3)
    torch.testing.assert_close(regression(x, adjacency), regression(adjacency.propagate(x, 2)))


def test_positions_keep_full_precision_under_autocast() -> None:
    regression = PositionRegression(3, 2, 4, smoothness=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = regression(torch.randn(6, 3).bfloat16(), normalised_adjacency(KITE, 6))
    assert found.dtype == torch.float32


def test_hops_by_hand() -> None:
    """The kite and a lone node: at most 3 hops count, all else is 4."""
    hops = hop_distances(KITE, 6, 3)
    expected = [
        [0, 1, 1, 2, 3, 4],
        [1, 0, 1, 2, 3, 4],
        [1, 1, 0, 1, 2, 4],
        [2, 2, 1, 0, 1, 4],
        [3, 3, 2, 1, 0, 4],
        [4, 4, 4, 4, 4, 0],
    ]
    assert hops.tolist() == expected
    assert hop_distances(KITE, 6, 1).max() == 2
    assert torch.equal(hop_distances(KITE[:, KITE[0] < KITE[1]], 6, 3), hops)


def test_implicit_positions_by_hand() -> None:
    """Two nodes at distance d: r = d²/(2·((d−1)² + 1 − 1 + …)): solve [[a, b], [b, a]] r = d²·1 for r."""
    distance = torch.tensor([[0.0, 0.5], [0.5, 0.0]], dtype=F64)
    diagonal = (0 - 1) ** 2 + (0.5 - 1) ** 2 - 1
    off = 2 * 0.5 - 2
    expected = 0.25 / (diagonal + off)
    torch.testing.assert_close(implicit_positions(distance), torch.full((2,), expected, dtype=F64))


def test_the_printed_equation_orders_nothing_and_ours_does() -> None:
    """As printed (+4d/n − 1 everywhere) the solution is n/2 for all nodes; with the right terms it is not."""
    d = DISTANCE_SCALE * hop_distances(KITE, 5, 4)
    printed = torch.diag(((2 * d / 5 - 1) ** 2).sum(1)) + 4 * d / 5 - 1
    solution = torch.linalg.solve(printed, 2 / 5 * (d**2).sum(1))
    torch.testing.assert_close(solution, torch.full((5,), 2.5, dtype=F64))
    ours = implicit_positions(d)
    # The ends of the kite part: the triangle's free corners tie, the tail stands alone.
    assert ours[0] == pytest.approx(float(ours[1]))
    assert len({round(float(value), 9) for value in ours}) == 4


def test_structural_positions_hold_the_profile() -> None:
    columns = structural_positions(KITE, 6, truncate=2)
    assert columns.shape == (6, 3)
    torch.testing.assert_close(columns[:, 1] * 6, torch.tensor([2.0, 2, 3, 2, 1, 0], dtype=F64))
    torch.testing.assert_close(columns[:, 2] * 6, torch.tensor([1.0, 1, 1, 2, 1, 0], dtype=F64))


def test_a_lone_node_has_a_position() -> None:
    assert implicit_positions(torch.zeros(1, 1)).tolist() == [0.0]
