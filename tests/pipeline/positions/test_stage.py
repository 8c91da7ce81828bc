"""Positions: the closed form equals the dense system, and the stage is the same to the byte every time."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline.config.settings import PositionConfig
from pipeline.ingest.generators import board
from pipeline.ingest.networkit_graphs import networkit_graph, power_law_graph, search_distances
from pipeline.positions.closed_form import DistanceSums, solve, solve_dense
from pipeline.positions.profiles import lay_out
from pipeline.positions.stage import (
    PositionParameters,
    choose_sources,
    compute_positions,
    position_columns,
    resolve_parameters,
    spread_landmarks,
    standardize,
    to_integers,
    write_positions,
)
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store, open_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore


class Nothing(BaseModel):
    pass


def make_store(path: Path, csr: CSR) -> GraphStore:
    size = csr.num_nodes
    graph = GraphArrays(
        name="x",
        csr=csr,
        features=np.zeros((size, 0), dtype=np.float32),
        labels=np.full(size, -1),
        splits=np.zeros((0, size), dtype=np.int8),
        num_classes=0,
    )
    return create_store(path, graph, Nothing())


def scaled_distances(csr: CSR, truncate: int | None) -> np.ndarray:
    graph = networkit_graph(csr)
    hops = np.stack([search_distances(graph, node) for node in range(csr.num_nodes)])
    depth = hops.max() if truncate is None else truncate
    return 0.1 * np.where((hops < 0) | (hops > depth), depth + 1, hops)


def error_in_deviations(csr: CSR, depth: str, truncate: int = 4) -> float:
    parameters = PositionParameters(truncate=truncate, depth=depth, batch_sources=100)  # type: ignore[arg-type]
    found = compute_positions(lay_out(csr), parameters, parallel=False).r_A
    expected = solve_dense(scaled_distances(csr, truncate if depth == "truncated" else None))
    # A graph whose nodes all see the same has no deviation: compare with the value itself.
    scale = expected.std() if expected.std() > 1e-9 * abs(expected.mean()) else abs(expected.mean())
    return float(np.abs(found - expected).max() / scale)


@st.composite
def random_graphs(draw: st.DrawFn) -> CSR:
    num_nodes = draw(st.integers(2, 40))
    num_edges = draw(st.integers(0, 80))
    ends = st.lists(st.integers(0, num_nodes - 1), min_size=num_edges, max_size=num_edges)
    return clean_edges(np.array(draw(ends), dtype=int), np.array(draw(ends), dtype=int), num_nodes)[0]


@given(csr=random_graphs(), depth=st.sampled_from(["truncated", "full"]), truncate=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_random_graphs_against_the_dense_system(csr: CSR, depth: str, truncate: int) -> None:
    assert error_in_deviations(csr, depth, truncate) < 1e-6


@pytest.mark.parametrize("depth", ["truncated", "full"])
@pytest.mark.parametrize(
    "csr",
    [
        power_law_graph(1500, seed=3),
        power_law_graph(800, seed=3, generator="barabasi-albert"),
        board(25),
        clean_edges(np.arange(299), np.arange(1, 300), 300)[0],
    ],
    ids=["power-law", "barabasi-albert", "grid", "path"],
)
def test_larger_graphs_against_the_dense_system(csr: CSR, depth: str) -> None:
    assert error_in_deviations(csr, depth) < 1e-6


def test_dense_system_by_hand() -> None:
    # Two joined nodes, d = 0.1: (4·0.01/4 − 4·0.1/2 + 2 − 1) r₁ + (4·0.1/2 − 2) r₂ = 0.01.
    distances = np.array([[0, 0.1], [0.1, 0]])
    expected = 0.01 / (0.81 - 1.8)
    assert solve_dense(distances) == pytest.approx([expected, expected])


def test_equation_as_printed_orders_nothing() -> None:
    distances = scaled_distances(board(4), 4)
    size = len(distances)
    printed = np.diag(((2 * distances / size - 1) ** 2).sum(axis=1)) + 4 * distances / size - 1
    solution = np.linalg.solve(printed, 2 * (distances**2).sum(axis=1) / size)
    assert solution == pytest.approx(np.full(size, size / 2))


def test_leading_order_errs_by_no_more_than_the_contraction() -> None:
    distances = scaled_distances(power_law_graph(600, seed=1), 4)
    sums = DistanceSums(distances.sum(axis=1), (distances**2).sum(axis=1))
    exact = solve_dense(distances)
    assert np.abs(solve(sums) - exact).max() / exact.std() < 3 * sums.contraction < 0.01


def test_sampled_refinement_of_large_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    csr = power_law_graph(4000, seed=5)
    exact = compute_positions(lay_out(csr), PositionParameters(), parallel=False).r_A
    coarse = compute_positions(lay_out(csr), PositionParameters(refinements=0), parallel=False).r_A
    monkeypatch.setattr("pipeline.positions.stage.EXACT_REFINEMENT_NODES", 1000)
    monkeypatch.setattr("pipeline.positions.stage.REFINEMENT_SAMPLE", 2000)
    sampled = compute_positions(lay_out(csr), PositionParameters(), parallel=False).r_A
    assert np.abs(sampled - exact).max() < 0.1 * np.abs(coarse - exact).max()


def test_landmarks_keep_the_order() -> None:
    csr = power_law_graph(4000, seed=5)
    exact = compute_positions(lay_out(csr), PositionParameters(), parallel=False).r_A
    found = compute_positions(lay_out(csr), PositionParameters(landmarks=512), parallel=False).r_A
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (exact, found)]
    assert np.asarray(np.corrcoef(ranks))[0, 1] > 0.98


def test_all_landmarks_are_exact() -> None:
    csr = board(12)
    exact = compute_positions(lay_out(csr), PositionParameters(refinements=0), parallel=False).r_A
    every = compute_positions(lay_out(csr), PositionParameters(landmarks=144), parallel=False).r_A
    assert every == pytest.approx(exact, rel=1e-12)


def test_relabelling_relabels_positions() -> None:
    csr = power_law_graph(500, seed=2)
    names = np.random.default_rng(0).permutation(500)
    rows = np.repeat(np.arange(500), csr.degrees())
    renamed, _ = clean_edges(names[rows], names[csr.indices], 500)
    first = compute_positions(lay_out(csr), PositionParameters(), parallel=False).r_A
    second = compute_positions(lay_out(renamed), PositionParameters(), parallel=False).r_A
    assert second[names] == pytest.approx(first, rel=1e-12)


def test_columns_are_standardised_and_tell_nodes_apart() -> None:
    csr = board(10)
    found = compute_positions(lay_out(csr), PositionParameters(), parallel=False)
    names, columns = position_columns(csr, found)
    assert names[:3] == ["r_A", "hop_1", "hop_2"]
    assert columns.shape == (100, 1 + 4 + 8)
    assert columns.mean(axis=0) == pytest.approx(np.zeros(13), abs=1e-5)
    assert columns.std(axis=0) == pytest.approx(np.ones(13), abs=1e-5)
    assert len(np.unique(columns, axis=0)) == 100


def test_landmarks_stay_in_the_main_component() -> None:
    csr, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 6)
    landmarks = spread_landmarks(csr, np.arange(6.0), 2)
    assert [landmark.tolist() for landmark in landmarks] == [[3, 2, 1, 0, 4, 4], [0, 1, 2, 3, 4, 4]]


def test_constants_are_standardised_to_zero() -> None:
    assert standardize(np.full(7, 0.3)).tolist() == [0.0] * 7


def test_integers_are_fine_and_do_not_overflow() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    integers, unit = to_integers(values, 10**6)
    assert np.abs(integers * unit - values).max() < 1e-6
    assert int(np.abs(integers).max()) * 1000 * (10**6 + 1) < 2**63
    assert to_integers(np.zeros(3), 4)[0].tolist() == [0, 0, 0]


def test_budget_rule() -> None:
    csr = board(50)
    exact = choose_sources(csr, truncate=4, full_depth=False)
    assert exact.landmarks is None
    assert "exact" in exact.reason
    over = choose_sources(csr, truncate=4, full_depth=False, budget_seconds=1e-9)
    assert over.landmarks == 512
    assert "over the budget" in over.reason
    assert choose_sources(csr, truncate=4, full_depth=False, landmarks=9).landmarks == 9
    assert choose_sources(csr, truncate=4, full_depth=True).seconds > 5 * exact.seconds


def test_parameters_from_settings() -> None:
    csr = board(6)
    parameters, choice = resolve_parameters(csr, PositionConfig(truncate=3, seed=5))
    assert parameters == PositionParameters(truncate=3, seed=5)
    assert choice.landmarks is None
    assert resolve_parameters(csr, PositionConfig(refinements=0))[0].refinements == 0
    assert resolve_parameters(csr, PositionConfig(landmarks=50))[0].landmarks == 36
    with pytest.raises(UserError, match=r"'positions\.batch_sources' to be at most 512"):
        resolve_parameters(
            csr, PositionConfig.model_construct(**{**dict(PositionConfig()), "batch_sources": 513})
        )


def test_stage_is_deterministic_and_a_rerun_does_nothing(tmp_path: Path) -> None:
    csr = power_law_graph(900, seed=6)
    stores = [make_store(tmp_path / name, csr) for name in ("first", "second")]
    for store in stores:
        assert write_positions(store, PositionParameters(), parallel=False)
        assert not write_positions(store, PositionParameters(), parallel=False)
    first, second = (open_store(store.path) for store in stores)
    assert first.digest == second.digest
    assert first.profile().shape == (900, 5)
    assert first.positions().shape == (900, len(first.position_columns))
    assert first.approximate_positions().dtype == np.float64


def test_directed_graphs_are_made_symmetric(tmp_path: Path) -> None:
    one_way, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 4, directed=True)
    both, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 4)
    graph = GraphArrays(
        name="x",
        csr=one_way,
        features=np.zeros((4, 0), dtype=np.float32),
        labels=np.full(4, -1),
        splits=np.zeros((0, 4), dtype=np.int8),
        num_classes=0,
        directed=True,
    )
    store = create_store(tmp_path / "directed", graph, Nothing())
    other = make_store(tmp_path / "both", both)
    for one in (store, other):
        write_positions(one, PositionParameters(), parallel=False)
    assert np.array_equal(store.profile(), other.profile())
