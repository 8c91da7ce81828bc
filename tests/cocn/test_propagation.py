"""The normalised adjacency: entries by hand, its gradient, and the two back ends."""

import importlib.util

import pytest
import torch
from torch import Tensor

from cocn import propagation
from cocn.propagation import NormalisedAdjacency, available_backend, normalised_adjacency
from tests.cocn.cases import random_graph
from tests.conftest import both_directions

F64 = torch.float64
STAR = torch.from_numpy(both_directions([(0, 1), (0, 2), (0, 3)]))


def dense(adjacency: NormalisedAdjacency) -> Tensor:
    return adjacency.propagate(torch.eye(adjacency.num_nodes, dtype=F64))


def test_star_by_hand() -> None:
    """Degrees 4 and 2 with self-loops, 3 and 1 without."""
    torch.set_default_dtype(F64)
    with_loops = dense(normalised_adjacency(STAR, 4))
    torch.testing.assert_close(with_loops.diagonal(), torch.tensor([1 / 4, 1 / 2, 1 / 2, 1 / 2]))
    torch.testing.assert_close(with_loops[0, 1:], torch.full((3,), 8**-0.5))
    without = dense(normalised_adjacency(STAR, 4, self_loops=False))
    torch.testing.assert_close(without[1:, 0], torch.full((3,), 3**-0.5))
    assert not without.diagonal().any()


def test_isolated_nodes_keep_only_themselves() -> None:
    assert dense(normalised_adjacency(STAR, 5))[4].tolist() == [0, 0, 0, 0, 1]
    assert not dense(normalised_adjacency(STAR, 5, self_loops=False))[4].any()


def test_one_direction_counts_in_both_and_the_larger_weight_wins() -> None:
    directed = STAR[:, STAR[0] < STAR[1]]
    assert torch.equal(dense(normalised_adjacency(directed, 4)), dense(normalised_adjacency(STAR, 4)))
    weights = torch.tensor([3.0, 1.0])
    pair = normalised_adjacency(torch.tensor([[0, 1], [1, 0]]), 2, weights, self_loops=False)
    assert pair.values.tolist() == pytest.approx([1.0, 1.0])
    mixed = normalised_adjacency(torch.tensor([[0, 1, 1], [1, 0, 2]]), 3, torch.tensor([3.0, 1.0, 6.0]))
    torch.testing.assert_close(dense(mixed)[0, 1].float(), torch.tensor(3 / (4 * 10) ** 0.5))


def test_repeated_edges_and_loops_count_once() -> None:
    doubled = torch.cat([STAR, STAR, torch.tensor([[2], [2]])], dim=1)
    assert torch.equal(dense(normalised_adjacency(doubled, 4)), dense(normalised_adjacency(STAR, 4)))


@pytest.mark.parametrize("power", [0, 1, 3])
def test_powers_and_gradients(power: int) -> None:
    graph = random_graph(1, 8, 12, channels=1)
    assert graph.edge_attr is not None
    adjacency = normalised_adjacency(graph.edge_index, 8, graph.edge_attr[:, 0])
    matrix = dense(adjacency)
    torch.testing.assert_close(matrix, matrix.t())
    x = torch.randn(8, 2, dtype=F64, requires_grad=True)
    expected = torch.linalg.matrix_power(matrix, power) @ x
    torch.testing.assert_close(adjacency.propagate(x, power), expected)
    assert torch.autograd.gradcheck(lambda x: adjacency.propagate(x, power), x)


def test_an_input_without_edges() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    assert torch.equal(dense(normalised_adjacency(empty, 3)), torch.eye(3, dtype=F64))


def test_every_tensor_moves() -> None:
    moved = normalised_adjacency(STAR, 4).to("meta")
    assert all(tensor.is_meta for tensor in (moved.indptr, moved.indices, moved.values))


def test_the_back_end_is_the_fastest_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_backend() == "torch"
    monkeypatch.setattr(propagation, "has_compiler", lambda: False)
    installed = importlib.util.find_spec("torch_sparse") is not None
    assert available_backend() == ("torch-sparse" if installed else "torch")


@pytest.mark.torch_sparse
def test_back_ends_agree() -> None:
    pytest.importorskip("torch_sparse", reason="the extra [torch-sparse] is optional and not installed")
    graph = random_graph(3, 60, 200, channels=1)
    assert graph.edge_attr is not None
    adjacency = normalised_adjacency(graph.edge_index, 60, graph.edge_attr[:, 0])
    x = torch.randn(60, 8, dtype=F64, requires_grad=True)
    weights = torch.randn(60, 8, dtype=F64)
    outputs = [adjacency.propagate(x, 3, backend) for backend in ("torch", "torch-sparse")]
    torch.testing.assert_close(*outputs)
    gradients = [torch.autograd.grad((output * weights).sum(), x)[0] for output in outputs]
    torch.testing.assert_close(*gradients)
