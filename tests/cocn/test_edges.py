"""The band of P̂AP̂ᵀ against the whole matrix."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import cocn.edges
from cocn import reference
from cocn.diagonal import Band
from cocn.edges import EdgeList, permuted_band, window_band
from cocn.permutation import gate
from cocn.ranking import rank
from tests.cocn.cases import error, gradients, random_graph

F64 = torch.float64


def edge_list(source: Tensor, target: Tensor, values: Tensor | None, symmetric: bool) -> EdgeList:
    return EdgeList(torch.zeros_like(source), source, target, values, symmetric)


def as_matrix(band: Band, sequence: int, channel: int = 0) -> Tensor:
    """The cells of a band put back into a matrix."""
    length, _, planes, width = band.cells.shape
    lower = planes // 2 + channel if band.num_directions == 2 else channel
    matrix = band.cells.new_zeros(length, length)
    for offset in range(1, width + 1):
        matrix += torch.diag_embed(band.cells[: length - offset, sequence, channel, offset - 1], offset)
        matrix += torch.diag_embed(band.cells[: length - offset, sequence, lower, offset - 1], -offset)
    return matrix


def test_standard_permutation_by_hand() -> None:
    """The path 0–1–2–3 in the order 2, 0, 3, 1: edges at places (1,3), (3,0), (0,2)."""
    source, target = torch.tensor([0, 1, 1, 2, 2, 3]), torch.tensor([1, 0, 2, 1, 3, 2])
    ranks = torch.tensor([[[1, 3, 0, 2]]])
    band = permuted_band(edge_list(source, target, None, True), ranks, torch.ones(1, 1, 4), None, 3)
    assert band.num_directions == 1
    expected = torch.zeros(4, 4)
    for row, column in ((1, 3), (0, 3), (0, 2)):
        expected[row, column] = expected[column, row] = 1
    torch.testing.assert_close(as_matrix(band, 0), expected)


def test_relaxation_spreads_an_edge_by_hand() -> None:
    """One edge from place 1 to place 0 of three, a = ½: E[i, j] = ½^((i−1) mod 3) ½^(j mod 3)."""
    edges = edge_list(torch.tensor([0]), torch.tensor([1]), None, False)
    ranks = torch.tensor([[[1, 0, 2]]])
    band = permuted_band(edges, ranks, torch.ones(1, 1, 3, dtype=F64), math.log(2.0), 2)
    rows, columns = torch.tensor([1 / 4, 1, 1 / 2], dtype=F64), torch.tensor([1, 1 / 2, 1 / 4], dtype=F64)
    expected = rows[:, None] * columns
    torch.testing.assert_close(as_matrix(band, 0), expected - torch.diag(expected.diagonal()))


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("tau", [1.5, 10.0, None])
@pytest.mark.parametrize(("directed", "channels"), [(False, 0), (False, 2), (True, 0), (True, 3)])
def test_both_routes_equal_the_matrix_in_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, tau: float | None, directed: bool, channels: int, dense: bool
) -> None:
    width, length, heads = 5, 70, 2
    monkeypatch.setattr(cocn.edges, "DENSE_LENGTH", length if dense else 0)
    monkeypatch.setattr("cocn.windows.CHUNK_ROWS", 40)
    graph = random_graph(1, length, 200, channels=channels, directed=directed)
    source, target = graph.edge_index
    values = graph.edge_attr if graph.edge_attr is None else graph.edge_attr.requires_grad_()
    symmetric = not directed and values is None
    r_A = torch.randn(1, heads, length, dtype=F64, requires_grad=True)
    ranks = rank(r_A)
    gates = gate(ranks.rank_grad_BHN, tau)
    band = permuted_band(edge_list(source, target, values, symmetric), ranks.rank_BHN, gates, tau, width)
    assert band.width == width
    A = reference.dense_adjacency(source, target, values, length, F64)
    near = torch.ones(length, length, dtype=F64).tril(width).triu(-width) - torch.eye(length, dtype=F64)
    inputs = [r_A] if values is None else [r_A, values]
    for head in range(heads):
        P = reference.permutation_matrix(reference.absolute_positions(r_A[0, head]), tau)
        for channel in range(max(channels, 1)):
            found = as_matrix(band, head, channel)
            expected = (P @ A[..., channel] @ P.t()) * near
            assert error(found, expected) < 1e-11
            for ours, theirs in zip(*(gradients(out, inputs) for out in (found, expected)), strict=True):
                assert error(ours, theirs) < 1e-10


def test_cells_past_the_last_place_are_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring in its own order has an edge across the end; the convolution must not see it."""
    monkeypatch.setattr(cocn.edges, "DENSE_LENGTH", 0)
    length = 60
    places = torch.arange(length)
    edges = edge_list(
        torch.cat([places, (places + 1) % length]), torch.cat([(places + 1) % length, places]), None, True
    )
    for tau in (2.0, None):
        ones = torch.ones(1, 1, length)
        cells = permuted_band(edges, places.view(1, 1, -1), ones, tau, 4).cells
        for offset in range(1, 5):
            assert not cells[length - offset :, 0, 0, offset - 1].any()
            assert cells[: length - offset, 0, 0, 0].all()


def test_repeated_edges_add_up() -> None:
    edges = edge_list(torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 0, 0]), None, True)
    band = permuted_band(edges, torch.tensor([[[0, 1, 2]]]), torch.ones(1, 1, 3), None, 2)
    assert band.cells[0, 0, 0].tolist() == [2.0, 0.0]


def test_a_window_that_holds_the_whole_graph_equals_the_band() -> None:
    graph = random_graph(4, 9, 14, channels=2, directed=True)
    A = reference.dense_adjacency(*graph.edge_index, graph.edge_attr, 9, F64)
    ranks = torch.randperm(9).view(1, 1, 9)
    edges = edge_list(*graph.edge_index, graph.edge_attr, False)
    whole = permuted_band(edges, ranks, torch.ones(1, 1, 9, dtype=F64), 0.7, 6)
    order = ranks.flatten().argsort()
    window = window_band(A[order][:, order][None, None], None, 0.7, 6)
    torch.testing.assert_close(window.cells, whole.cells)


def test_window_gates_have_the_gradient_of_the_matrix() -> None:
    A = torch.rand(2, 1, 5, 5, 1, dtype=F64)
    gates = torch.ones(5, 2, dtype=F64, requires_grad=True)
    cells = window_band(A, gates, 0.5, 4).cells
    assert torch.autograd.gradcheck(lambda gates: window_band(A, gates, 0.5, 4).cells, gates)
    assert cells.shape == (5, 2, 2, 4)


def test_a_single_node_has_no_band() -> None:
    nothing = torch.empty(0, dtype=torch.long)
    band = permuted_band(
        edge_list(nothing, nothing, None, True),
        torch.zeros(1, 2, 1, dtype=torch.long),
        torch.ones(1, 2, 1),
        1.0,
        4,
    )
    assert band.width == 0


def test_edges_of_one_graph_are_picked() -> None:
    graphs = torch.tensor([0, 0, 1, 2, 2])
    edges = EdgeList(graphs, torch.arange(5), torch.arange(5).flip(0), torch.arange(5.0)[:, None], False)
    own = edges.of_graph(2)
    assert own.source.tolist() == [3, 4]
    assert own.target.tolist() == [1, 0]
    assert own.values is not None
    assert own.values.flatten().tolist() == [3.0, 4.0]
    assert not any(
        torch.equal(edges.of_graph(a).source, edges.of_graph(b).source) for a, b in pairwise(range(3))
    )
