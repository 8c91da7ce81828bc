"""The fast path against the dense equations, over the settings of the family, in both precisions.

Edges carry random weights: in a plain adjacency, cells of E tie up to rounding, max pooling then has more
than one subgradient, and two correct implementations may differ.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import cocn.edges
import cocn.windows
from cocn import CoCN, ExpandedCoCN, SparseCoCN, VanillaCoCN, reference
from tests.cocn.cases import assert_equals_oracle, join, random_graph

BandRoute = Callable[[int, int], None]

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
DTYPES = [pytest.param(torch.float64, id="float64"), pytest.param(torch.float32, id="float32")]
#: L1, L2 and the optional last layer: unit steps only, steps of k only, and both.
DEPTHS = [(1, 0, False), (0, 1, False), (2, 1, False), (1, 2, True)]


def build(model: type[CoCN], dtype: torch.dtype, **settings: Any) -> CoCN:
    torch.set_default_dtype(dtype)
    settings = {"num_heads": 2, "edge_channels": 1} | settings
    return model(3, 4, 2, **settings)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kernel_size", [2, 3, 5])
@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0, None])
def test_padded_batches_equal_the_dense_equations(
    tau: float | None,
    kernel_size: int,
    depth: tuple[int, int, bool],
    dtype: torch.dtype,
) -> None:
    sizes = [(11, 20), (4, 3), (17, 30)]
    graph = join([random_graph(n, n, m, channels=1, dtype=dtype) for n, m in sizes])
    for task, residual in (("node", True), ("graph", False)):
        model = build(
            CoCN,
            dtype,
            task=task,
            residual=residual,
            tau=tau,
            kernel_size=kernel_size,
            unit_layers=depth[0],
            pool_layers=depth[1],
            final_layer=depth[2],
        )
        assert_equals_oracle(model, graph, TOLERANCE[dtype])


@pytest.fixture
def band_route(monkeypatch: pytest.MonkeyPatch) -> BandRoute:
    """Make sure that E is built as a band, in several chunks: sequences are longer than twice its reach."""

    def install(length: int, reach: int) -> None:
        monkeypatch.setattr(cocn.edges, "DENSE_LENGTH", 0)
        monkeypatch.setattr(cocn.windows, "CHUNK_ROWS", 150)
        assert length > 2 * reach + 1

    return install


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel_size", [2, 3, 5])
@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0, None])
def test_long_sequences_equal_the_dense_equations(
    band_route: BandRoute,
    tau: float | None,
    kernel_size: int,
    dtype: torch.dtype,
) -> None:
    model = build(
        ExpandedCoCN, dtype, tau=tau, kernel_size=kernel_size, unit_layers=1, pool_layers=1, num_heads=2
    )
    reach = model.stack.band_width + cocn.edges.num_taps(tau, dtype)
    length = 2 * reach + 20
    graph = random_graph(5, length, 3 * length, channels=1, dtype=dtype)
    band_route(length, reach)
    assert_equals_oracle(model, graph, TOLERANCE[dtype])


def test_a_graph_past_the_dense_length_takes_the_band_by_itself() -> None:
    length = cocn.edges.DENSE_LENGTH + 10
    model = build(ExpandedCoCN, torch.float64, unit_layers=1, pool_layers=2, kernel_size=3)
    assert length > 2 * (model.stack.band_width + cocn.edges.num_taps(1.0, torch.float64)) + 1
    assert_equals_oracle(model, random_graph(2, length, 4 * length, channels=1), 1e-9)


@pytest.mark.parametrize("task", ["node", "graph"])
def test_batches_of_long_graphs_equal_the_dense_equations(band_route: BandRoute, task: str) -> None:
    model = build(ExpandedCoCN, torch.float64, task=task, tau=10.0, kernel_size=3, unit_layers=2)
    band_route(41, 4 + model.stack.band_width)
    # The second graph is short enough for the dense route, the third for no band at all.
    graph = join(
        [random_graph(n, n, 3 * n, channels=1) for n in (41, 12)] + [random_graph(1, 1, 0, channels=1)]
    )
    assert_equals_oracle(model, graph, 1e-9)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(
    ("directed", "channels", "settings"),
    [
        (True, 0, {}),
        (True, 1, {"propagated_features": 2}),
        (False, 3, {"kernel_size": (2, 3), "smoothness": 3}),
        (True, 2, {"kernel_size": (5, 3, 2), "residual": False}),
        (False, 1, {"node_features": False}),
        (False, 1, {"node_features": False, "task": "graph"}),
        (True, 1, {"structure_features": False}),
        (False, 1, {"propagation": "before", "self_loops": False}),
        (False, 1, {"rank_gradient": "taylor"}),
        (False, 1, {"rank_gradient": "taylor", "normalise_rank_gradient": False}),
        (False, 1, {"rank_gradient": "pairwise", "normalise_rank_gradient": "all"}),
        (False, 1, {"recovery_scale": "authors"}),
    ],
)
def test_variants_equal_the_dense_equations(
    band_route: BandRoute,
    directed: bool,
    channels: int,
    settings: dict[str, Any],
    long: bool,
) -> None:
    settings = {"tau": 2.0, "edge_channels": max(channels, 1), "kernel_size": 3} | settings
    model = build(ExpandedCoCN, torch.float64, unit_layers=1, pool_layers=1, **settings)
    length = 2 * (model.stack.band_width + 19) + 2
    graph = random_graph(7, length, 2 * length, channels=channels, directed=directed)
    if long:
        band_route(length, model.stack.band_width + 19)
    else:
        graph = join([graph, random_graph(8, 6, 7, channels=channels, directed=directed)])
    assert_equals_oracle(model, graph, 1e-9)
    assert_equals_oracle(model, graph, 1e-9, learn_edges=True)


@pytest.mark.parametrize("model", [VanillaCoCN, ExpandedCoCN, SparseCoCN])
def test_large_graphs_rank_by_the_taylor_gradient(monkeypatch: pytest.MonkeyPatch, model: type[CoCN]) -> None:
    monkeypatch.setattr("cocn.models.PAIRWISE_LIMIT", 20)
    monkeypatch.setattr("cocn.reference.PAIRWISE_LIMIT", 20)
    graph = random_graph(7, 30, 60, channels=1)
    chosen = build(model, torch.float64, kernel_size=3)
    normalised = chosen.rank_nodes(chosen.prepare(graph.x, **graph.tensors())).rank_grad_BHN
    assert "Taylor" in type(normalised.grad_fn).__name__
    assert_equals_oracle(chosen, graph, 1e-9)


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_graphs_smaller_than_the_kernel(num_nodes: int, task: str) -> None:
    model = build(ExpandedCoCN, torch.float64, task=task, kernel_size=5, unit_layers=2, pool_layers=2)
    assert_equals_oracle(model, random_graph(1, num_nodes, 10, channels=1), 1e-9)


def test_isolated_nodes_and_graphs_without_edges() -> None:
    model = build(ExpandedCoCN, torch.float64, kernel_size=3)
    sparse = random_graph(1, 20, 4)
    assert torch.bincount(sparse.edge_index[0], minlength=20).eq(0).any()
    assert_equals_oracle(model, sparse, 1e-9)
    assert_equals_oracle(model, join([random_graph(1, 5, 0), random_graph(2, 7, 0)]), 1e-9)


@pytest.mark.parametrize("position_source", ["implicit", "fixed"])
def test_other_positions_equal_the_dense_equations(position_source: str) -> None:
    graph = join([random_graph(n, n, 2 * n, channels=1) for n in (12, 9)])
    model = build(ExpandedCoCN, torch.float64, position_source=position_source, kernel_size=3)
    if position_source == "implicit":
        assert_equals_oracle(model, graph, 1e-9)
        return
    batch = model.prepare(graph.x, **graph.tensors(), positions=torch.randn(21, 2))
    torch.testing.assert_close(model(batch), reference.forward(model, batch), atol=1e-9, rtol=1e-9)
