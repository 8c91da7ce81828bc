"""Distance profiles equal networkit's breadth-first search, however they are batched, run or resumed."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from pipeline.ingest.generators import board
from pipeline.ingest.networkit_graphs import networkit_graph, power_law_graph, search_distances
from pipeline.positions.profiles import compute_profiles, count_edge_visits, lay_out, weigh_distances
from pipeline.positions.search import NO_LIMIT, Searcher, Sums, hop_distances
from pipeline.positions.search_tasks import plan_groups, run_group
from pipeline.store.access import create_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore


def distances(csr: CSR) -> np.ndarray:
    graph = networkit_graph(csr)
    return np.stack([search_distances(graph, source) for source in range(csr.num_nodes)])


@st.composite
def random_graphs(draw: st.DrawFn) -> CSR:
    num_nodes = draw(st.integers(1, 40))
    num_edges = draw(st.integers(0, 80))
    ends = st.lists(st.integers(0, num_nodes - 1), min_size=num_edges, max_size=num_edges)
    return clean_edges(np.array(draw(ends), dtype=int), np.array(draw(ends), dtype=int), num_nodes)[0]


def two_parts() -> CSR:
    grid = board(5)
    rows = np.repeat(np.arange(25), grid.degrees())
    return clean_edges(
        np.concatenate([rows, rows + 30]), np.concatenate([grid.indices, grid.indices + 30]), 60
    )[0]


GRAPHS = {
    "power-law": power_law_graph(700, seed=1),
    "barabasi-albert": power_law_graph(600, seed=2, generator="barabasi-albert"),
    "grid": board(24),
    "disconnected": two_parts(),
    "lone node": clean_edges(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 1)[0],
}


def check(csr: CSR, truncate: int, batch: int) -> None:
    hops, layout = distances(csr), lay_out(csr)
    levels = np.arange(truncate + 1)
    expected = (hops[:, :, None] == levels).sum(axis=1)
    exact = compute_profiles(layout, truncate=truncate, batch_sources=batch, parallel=False)
    assert np.array_equal(exact.counts, expected)
    assert np.array_equal(exact.first, expected @ levels)
    full = compute_profiles(layout, truncate=truncate, full_depth=True, batch_sources=batch, parallel=False)
    found = np.maximum(hops, 0)
    assert np.array_equal(full.counts, expected)
    assert np.array_equal(full.reached, (hops > 0).sum(axis=1))
    assert np.array_equal(full.first, found.sum(axis=1))
    assert np.array_equal(full.second, (found**2).sum(axis=1))
    assert full.depth == hops.max()


@given(csr=random_graphs(), truncate=st.integers(1, 6), batch=st.sampled_from([1, 7, 64, 100, 512]))
@settings(max_examples=60, deadline=None)
def test_profiles_of_random_graphs(csr: CSR, truncate: int, batch: int) -> None:
    check(csr, truncate, batch)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize(("truncate", "batch"), [(4, 512), (2, 65)])
def test_profiles_of_graphs_of_many_kinds(name: str, truncate: int, batch: int) -> None:
    check(GRAPHS[name], truncate, batch)


def test_profile_of_a_path_by_hand() -> None:
    csr, _ = clean_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), 5)
    profiles = compute_profiles(lay_out(csr), truncate=2, parallel=False)
    assert profiles.counts.tolist() == [[1, 1, 1], [1, 2, 1], [1, 2, 1], [1, 1, 1], [1, 0, 0]]


@pytest.mark.parametrize("depth", [3, None])
@pytest.mark.parametrize("name", GRAPHS)
def test_weighted_distances(name: str, depth: int | None) -> None:
    csr = GRAPHS[name]
    hops = distances(csr)
    weights = np.random.default_rng(0).integers(-1000, 1000, csr.num_nodes)
    near = (hops > 0) & (hops <= (depth or csr.num_nodes))
    expected = np.stack([near @ weights, np.where(near, hops, 0) @ weights])
    found = weigh_distances(lay_out(csr), weights, depth=depth, name="x", batch_sources=100, parallel=False)
    assert np.array_equal(found, expected)


def test_some_sources_only() -> None:
    csr, sources = GRAPHS["grid"], np.array([3, 500, 77])
    profiles = compute_profiles(lay_out(csr), truncate=4, sources=sources, parallel=False)
    hops = distances(csr)[:, sources]
    assert np.array_equal(profiles.counts, (hops[:, :, None] == np.arange(5)).sum(axis=1))
    assert profiles.num_sources == 3


def test_hop_distances() -> None:
    csr = GRAPHS["disconnected"]
    assert np.array_equal(np.stack([hop_distances(csr, node) for node in range(60)]), distances(csr))


def test_a_searcher_is_clean_after_each_sweep() -> None:
    csr = GRAPHS["power-law"]
    searcher, once, twice = Searcher(csr), Sums.zeros(700, 3), Sums.zeros(700, 3)
    sources = np.arange(300, dtype=np.int32)
    searcher.sweep(sources, 3, once)
    searcher.sweep(sources, NO_LIMIT, Sums.zeros(700, 1))
    searcher.sweep(sources, 3, twice)
    assert np.array_equal(once.counts, twice.counts)


def test_too_many_sources() -> None:
    with pytest.raises(ValueError, match="'sources' to be 1 to 512"):
        Searcher(GRAPHS["grid"]).sweep(np.arange(513, dtype=np.int32), 2, Sums.zeros(576, 2))
    with pytest.raises(ValueError, match="'batch_sources' to be 1 to 512"):
        plan_groups(10, 513)


def test_groups_cover_the_sources_once() -> None:
    for num_sources, batch in [(1, 512), (513, 512), (100_000, 512), (1000, 3)]:
        groups = plan_groups(num_sources, batch)
        assert len(groups) <= 64
        assert [group.start for group in groups[1:]] == [group.stop for group in groups[:-1]]
        assert (groups[0].start, groups[-1].stop) == (0, num_sources)


def test_edge_visits_are_those_of_single_searches() -> None:
    csr = GRAPHS["disconnected"]
    profiles = compute_profiles(lay_out(csr), truncate=3, parallel=False)
    hops = distances(csr)
    expected = sum(csr.degrees()[(row >= 0) & (row < 3)].sum() for row in hops)
    assert count_edge_visits(csr, profiles.counts) == expected


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


def test_interrupted_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csr = GRAPHS["power-law"]
    layout, store = lay_out(csr), make_store(tmp_path / "store", csr)
    whole = compute_profiles(layout, truncate=4, batch_sources=16, parallel=False)
    calls = 0

    def dies_in_the_middle(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 21:
            raise KeyboardInterrupt
        return run_group(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("pipeline.positions.search_tasks.run_group", dies_in_the_middle)
    with pytest.raises(KeyboardInterrupt), store.begin("positions", Nothing()) as stage:
        compute_profiles(layout, truncate=4, batch_sources=16, stage=stage, parallel=False)
    with store.begin("positions", Nothing()) as stage:
        resumed = compute_profiles(layout, truncate=4, batch_sources=16, stage=stage, parallel=False)
    assert (resumed.batches, resumed.resumed_batches) == (44, 20)
    assert calls == 21 + 24
    assert np.array_equal(resumed.counts, whole.counts)


@pytest.mark.usefixtures("local_ray")
def test_ray_tasks_agree_with_one_process() -> None:
    layout = lay_out(GRAPHS["power-law"])
    alone = compute_profiles(layout, truncate=4, full_depth=True, batch_sources=64, parallel=False)
    tasks = compute_profiles(layout, truncate=4, full_depth=True, batch_sources=64, parallel=True)
    assert np.array_equal(alone.counts, tasks.counts)
    assert np.array_equal(alone.second, tasks.second)
    assert tasks.peak_memory_bytes > 0
