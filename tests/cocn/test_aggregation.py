"""Means over neighbours: by hand, against a dense oracle in value and gradient, compiled and not."""

import pytest
import torch
from torch import Tensor

from cocn import sparse_rows
from cocn.aggregation import Direction, MeanAggregator, mean_aggregator
from cocn.sparse_rows import SparseRows, balanced_blocks

#: 0→1, 2→1, 1→0, 3→0; node 4 is isolated.
EDGES = torch.tensor([[0, 2, 1, 3], [1, 1, 0, 0]])
DIRECTIONS: tuple[Direction, ...] = ("in", "out", "both")


@pytest.fixture(params=["compiled", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to multiply: the compiled loop, and torch's product as on machines without numba."""
    if request.param == "torch":
        monkeypatch.setattr(sparse_rows, "has_compiler", lambda: False)
    else:
        assert sparse_rows.has_compiler()
    return str(request.param)


def dense_mean(
    edge_index: Tensor, num_nodes: int, direction: Direction, weight: Tensor, dtype: torch.dtype
) -> Tensor:
    """D⁻¹A with a dense A."""
    matrix = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    source, target = edge_index
    if direction == "both":
        for i, j, w in zip(source.tolist(), target.tolist(), weight.tolist(), strict=True):
            matrix[i, j] = max(matrix[i, j], w)
            matrix[j, i] = max(matrix[j, i], w)
    else:
        matrix.index_put_((target, source), weight.double(), accumulate=True)
        matrix = matrix if direction == "in" else matrix.t()
    degree = matrix.sum(1, keepdim=True)
    return (matrix / degree.where(degree > 0, 1.0)).to(dtype)


@pytest.mark.usefixtures("path")
def test_by_hand() -> None:
    x = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0]])
    assert mean_aggregator(EDGES, 5, "in")(x)[:, 0].tolist() == [5.0, 2.5, 0.0, 0.0, 0.0]
    assert mean_aggregator(EDGES, 5, "out")(x)[:, 1].tolist() == [20.0, 10.0, 20.0, 10.0, 0.0]
    assert mean_aggregator(EDGES, 5, "both")(x)[:, 0].tolist() == [5.0, 2.5, 2.0, 1.0, 0.0]
    weighted = mean_aggregator(EDGES, 5, "in", torch.tensor([3.0, 1.0, 1.0, 0.0]))
    assert weighted(x)[:, 0].tolist() == [2.0, 1.75, 0.0, 0.0, 0.0]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_weight", [False, True])
def test_values_and_gradients_match_the_dense_matrix(
    direction: Direction, dtype: torch.dtype, with_weight: bool
) -> None:
    torch.set_default_dtype(dtype)
    edges = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(3))
    edges = edges[:, edges.max(0).values < 38].unique(dim=1)
    weight = torch.rand(edges.size(1), generator=torch.Generator().manual_seed(4)) + 0.1
    matrix = dense_mean(edges, 40, direction, weight if with_weight else torch.ones_like(weight), dtype)
    aggregator = mean_aggregator(edges, 40, direction, weight if with_weight else None)
    for channels in (1, 7, 32):
        x = torch.randn(40, channels, generator=torch.Generator().manual_seed(5), requires_grad=True)
        grad = torch.randn(40, channels, generator=torch.Generator().manual_seed(6))
        (expected_grad,) = torch.autograd.grad(matrix @ x, x, grad)
        found = aggregator(x)
        (found_grad,) = torch.autograd.grad(found, x, grad)
        torch.testing.assert_close(found, matrix @ x)
        torch.testing.assert_close(found_grad, expected_grad)


def test_the_number_of_threads_does_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "BLOCK_WORK", 16)
    edges = torch.randint(0, 200, (2, 2_000), generator=torch.Generator().manual_seed(0))
    x = torch.randn(200, 24, generator=torch.Generator().manual_seed(1))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(mean_aggregator(edges, 200, "in")(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


def test_blocks_cover_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "BLOCK_WORK", 8)
    counts = torch.tensor([0, 0, 30, 1, 0, 2, 5, 0, 0, 0])
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    blocks = balanced_blocks(indptr)
    assert len(blocks) > 2
    assert [row for block in blocks for row in block] == list(range(10))
    assert balanced_blocks(torch.zeros(1, dtype=torch.long)) == []


@pytest.mark.usefixtures("path")
def test_reduced_precision_comes_back_as_it_came() -> None:
    aggregator = mean_aggregator(EDGES, 5, "in")
    out = aggregator(torch.ones(5, 3, dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16
    assert out[0].tolist() == [1.0, 1.0, 1.0]


def test_transposed_twice_is_the_matrix_itself() -> None:
    aggregator = mean_aggregator(EDGES, 5, "in")
    assert torch.equal(
        aggregator.rows.transpose().transpose().multiply(torch.eye(5)), aggregator.rows.multiply(torch.eye(5))
    )


def test_moving_keeps_the_operator() -> None:
    aggregator = mean_aggregator(EDGES, 5, "out")
    moved = aggregator.to("cpu")
    assert isinstance(moved, MeanAggregator)
    assert moved.num_nodes == 5
    assert torch.equal(moved(torch.eye(5)), aggregator(torch.eye(5)))


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected 'x' to be of shape \[5, channels\] \(got \[4, 2\]\)"):
        mean_aggregator(EDGES, 5)(torch.ones(4, 2))
    with pytest.raises(ValueError, match=r"Expected 'indptr' to have 6 entries \(got 3\)"):
        MeanAggregator(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), 5)
    with pytest.raises(ValueError, match=r"Expected 'direction' to be 'in', 'out' or 'both' \(got 'up'\)"):
        mean_aggregator(EDGES, 5, "up")  # type: ignore[arg-type]


def test_a_graph_without_edges_gives_zeros() -> None:
    assert not mean_aggregator(torch.zeros(2, 0, dtype=torch.long), 3)(torch.ones(3, 2)).any()
    empty = SparseRows(torch.zeros(1, dtype=torch.long), torch.zeros(0, dtype=torch.long), torch.zeros(0), 2)
    assert empty.multiply(torch.ones(2, 4)).shape == (0, 4)
