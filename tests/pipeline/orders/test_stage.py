"""Orders of the heads: what they cover, that only structure decides them, and their alternatives."""

from pathlib import Path

import numpy as np
import pytest

from cocn.loading.covering import cuthill_mckee_order, residual_orders, window_order
from pipeline.ingest.generators import board
from pipeline.ingest.networkit_graphs import power_law_graph
from pipeline.orders.encodings import laplacian_columns, random_walk_columns
from pipeline.orders.stage import OrderParameters, OrderSummary, head_positions, write_orders
from pipeline.positions.stage import PositionParameters, write_positions
from pipeline.store.access import open_store
from pipeline.store.arrays import CSR
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import StoreError
from tests.pipeline.positions.test_stage import make_store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    store = make_store(tmp_path_factory.mktemp("heads") / "store", power_law_graph(1200, seed=4))
    write_positions(store, PositionParameters(), parallel=False)
    return store


def all_edges(csr: CSR) -> np.ndarray:
    return np.ones(csr.num_edges, dtype=np.bool_)


@pytest.mark.parametrize("length", [2, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_every_step_of_the_window_order_is_greedy(seed: int, length: int) -> None:
    draw = np.random.default_rng(seed)
    csr, _ = clean_edges(draw.integers(0, 40, 90), draw.integers(0, 40, 90), 40)
    order = window_order(csr, all_edges(csr), length).tolist()
    assert sorted(order) == list(range(40))
    neighbours = [set(csr.indices[csr.indptr[v] : csr.indptr[v + 1]].tolist()) for v in range(40)]
    for place, node in enumerate(order):
        recent = set(order[max(0, place - length + 1) : place])
        assert len(neighbours[node] & recent) == max(
            len(neighbours[other] & recent) for other in order[place:]
        )


def test_a_path_is_covered_by_one_order() -> None:
    shuffled = np.random.default_rng(0).permutation(50)
    csr, _ = clean_edges(shuffled[:-1], shuffled[1:], 50)
    order = window_order(csr, all_edges(csr), 2).tolist()
    assert order in (shuffled.tolist(), shuffled[::-1].tolist())


def test_minesweeper_is_covered_completely() -> None:
    csr = board(30)
    orders = residual_orders(csr, np.zeros(900), 8, 8, window_order)
    assert orders.covered == 1.0
    assert np.array_equal(np.sort(orders.rank, axis=0), np.tile(np.arange(900)[:, None], 8))
    assert np.array_equal(orders.rank[:, 1], 899 - orders.rank[:, 0])


def test_window_orders_cover_more_than_the_alternatives(store: GraphStore) -> None:
    csr, positions = store.csr(), store.approximate_positions()
    window = residual_orders(csr, positions, 8, 8, window_order).covered
    cuthill = residual_orders(csr, positions, 8, 8, cuthill_mckee_order).covered
    assert window > 0.6
    assert window > cuthill


def test_no_edges() -> None:
    csr, _ = clean_edges(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 5)
    assert residual_orders(csr, np.arange(5.0), 3, 2, window_order).covered == 1.0


def test_relabelling_relabels_the_orders(store: GraphStore) -> None:
    csr, positions = store.csr(), store.approximate_positions()
    names = np.random.default_rng(1).permutation(1200)
    rows = np.repeat(np.arange(1200), csr.degrees())
    renamed, _ = clean_edges(names[rows], names[csr.indices], 1200)
    moved = np.empty(1200)
    moved[names] = positions
    first = residual_orders(csr, positions, 2, 8, window_order)
    second = residual_orders(renamed, moved, 2, 8, window_order)
    # Nodes that no structure tells apart (leaves of one hub) may swap, which leaves the coverage as it is.
    assert second.covered == pytest.approx(first.covered, abs=1e-12)


@pytest.mark.parametrize("family", ["window", "profile", "lappe", "rwpe", "rcm"])
def test_families(store: GraphStore, family: str) -> None:
    columns = head_positions(store, 4, family=family)  # type: ignore[arg-type]
    assert columns.shape == (1200, 4)
    assert np.isfinite(columns).all()
    assert np.array_equal(columns, head_positions(store, 4, family=family))  # type: ignore[arg-type]


def test_stage_stores_orders_and_coverage(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", board(12))
    with pytest.raises(StoreError, match="'positions' before 'orders'"):
        write_orders(store, OrderParameters())
    write_positions(store, PositionParameters(), parallel=False)
    computed = head_positions(store, 8)
    assert write_orders(store, OrderParameters())
    assert not write_orders(store, OrderParameters())
    opened = open_store(store.path)
    assert np.array_equal(head_positions(opened, 8), computed)
    coverage = opened.summary("orders", OrderSummary).coverage
    assert coverage.own[-1] == coverage.union[-1] == 1.0


def test_laplacian_of_a_path_sorts_it() -> None:
    shuffled = np.random.default_rng(0).permutation(30)
    csr, _ = clean_edges(shuffled[:-1], shuffled[1:], 32)
    first = laplacian_columns(csr, 3)[:, 0]
    order = np.argsort(first[shuffled])
    assert order.tolist() in (list(range(30)), list(range(29, -1, -1)))
    assert first[[30, 31]].tolist() == [0.0, 0.0]


def test_laplacian_of_tiny_graphs_is_padded() -> None:
    csr, _ = clean_edges(np.array([0]), np.array([1]), 3)
    assert laplacian_columns(csr, 4).tolist() == np.zeros((3, 4)).tolist()


def test_random_walks_by_hand() -> None:
    csr, _ = clean_edges(np.array([0, 1, 2, 2]), np.array([1, 2, 0, 3]), 4)
    matrix = np.zeros((4, 4))
    for node in range(4):
        others = csr.indices[csr.indptr[node] : csr.indptr[node + 1]]
        matrix[node, others] = 1 / len(others)
    expected = np.stack([np.diag(np.linalg.matrix_power(matrix, step)) for step in (2, 3, 4)], axis=1)
    assert random_walk_columns(csr, 3) == pytest.approx(expected)


def test_estimated_random_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    csr = power_law_graph(300, seed=0)
    exact = random_walk_columns(csr, 2)
    monkeypatch.setattr("pipeline.orders.encodings.EXACT_WALK_PRODUCTS", 0)
    estimated = random_walk_columns(csr, 2)
    assert np.abs(estimated - exact).mean() < 0.05
