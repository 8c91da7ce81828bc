"""`cocn bench positions`: all-pairs profiles by shared sweeps against networkit's search from each source."""

import math
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.networkit_graphs import (
    Generator,
    networkit_graph,
    power_law_graph,
    search_distances,
    time_search,
)
from pipeline.positions.profiles import Layout, count_edge_visits, lay_out
from pipeline.positions.search import MAX_SOURCES, NO_LIMIT, Searcher, Sums
from pipeline.runtime.progress import progress
from pipeline.store.arrays import CSR

_ROUNDS = 8
_SEARCHES_PER_ROUND = 4
_FULL_DEPTH_BATCHES = 12


@dataclass(frozen=True)
class PositionsBenchmark:
    """One core each, on the same graph, alternating."""

    nodes: int
    edges: int
    """Undirected."""
    truncate: int
    generator: str
    speedup_vs_networkit: float
    """Time of networkit's search from one source over ours, as a share of all pairs; the median round."""
    speedup_full_depth: float
    """The same with our search continuing until every reachable node is found, as networkit's does."""
    mismatches: int
    """Counts that differ from networkit's distances, over all sources that it searched from."""
    edge_visits_per_second: float
    """Edges that searches from every single source would have visited, per second of ours."""
    growth: float
    """Exponent with which our time per source grows with the graph, from half its size; 1 is linear."""
    seconds_all_pairs: float
    milliseconds_per_source: float
    networkit_milliseconds_per_source: float


def run(
    nodes: int = 100_000, *, truncate: int = 4, seed: int = 0, generator: Generator = "hyperbolic"
) -> PositionsBenchmark:
    """Measure exact truncated profiles of a power-law graph.

    Args:
        nodes: Size of the graph.
        truncate: Number of hops to count.
        seed: Seed of the graph and of the sources that networkit searches from.
        generator: Model that generates the graph.
    """
    _warm_up()
    full = _Sweeps(power_law_graph(nodes, seed=seed, generator=generator), truncate)
    half = _Sweeps(power_law_graph(nodes // 2, seed=seed, generator=generator), truncate)
    race = _run_race(full, half, seed)
    return PositionsBenchmark(
        nodes=nodes,
        edges=full.csr.num_edges // 2,
        truncate=truncate,
        generator=generator,
        speedup_vs_networkit=race.speedup(full.arranging / nodes),
        speedup_full_depth=statistics.median(race.theirs) / _time_full_depth(full.layout),
        mismatches=race.mismatches,
        edge_visits_per_second=count_edge_visits(full.csr, full.counts()) / full.seconds,
        growth=math.log2(sum(full.rounds) / nodes) - math.log2(sum(half.rounds) / (nodes // 2)),
        seconds_all_pairs=full.seconds,
        milliseconds_per_source=1e3 * full.seconds / nodes,
        networkit_milliseconds_per_source=1e3 * statistics.median(race.theirs),
    )


class _Sweeps:
    """The profiles of all pairs of a graph, in timed rounds."""

    def __init__(self, csr: CSR, truncate: int) -> None:
        self.csr = csr
        start = time.perf_counter()
        self.layout = lay_out(csr)
        self.arranging = time.perf_counter() - start
        self.rounds: list[float] = []
        self.sizes: list[int] = []
        self._truncate = truncate
        self._searcher = Searcher(self.layout.csr)
        self._sums = Sums.zeros(csr.num_nodes, truncate)
        sources = self.layout.sources(None)
        batches = [sources[i : i + MAX_SOURCES] for i in range(0, len(sources), MAX_SOURCES)]
        # Neighbouring batches are similar, so every round takes some from everywhere.
        self._parts = [batches[number::_ROUNDS] for number in range(min(_ROUNDS, len(batches)))]

    def run(self, number: int) -> None:
        """Run and time one round; rounds beyond the last are empty."""
        part = self._parts[number] if number < len(self._parts) else []
        start = time.perf_counter()
        for batch in part:
            self._searcher.sweep(batch, self._truncate, self._sums)
        self.rounds.append(time.perf_counter() - start)
        self.sizes.append(sum(map(len, part)))

    @property
    def num_rounds(self) -> int:
        return len(self._parts)

    @property
    def seconds(self) -> float:
        return self.arranging + sum(self.rounds)

    def counts(self) -> NDArray[np.int32]:
        """The distance profile of every node, [n, K + 1]."""
        itself = np.ones((self.csr.num_nodes, 1), dtype=np.int32)
        return np.concatenate([itself, self._sums.counts.T[self.layout.place]], axis=1)


@dataclass(frozen=True)
class Race:
    """Seconds of our rounds, the sources in each, and seconds of networkit's searches in between."""

    ours: list[float]
    sizes: list[int]
    theirs: list[float]
    mismatches: int

    def speedup(self, overhead: float) -> float:
        """Median over the rounds; `overhead` is the cost of a source in addition to its sweep."""
        searches = np.array(self.theirs).reshape(len(self.ours), -1).mean(axis=1)
        rounds = zip(self.ours, self.sizes, searches.tolist(), strict=True)
        ratios = [theirs / (seconds / size + overhead) for seconds, size, theirs in rounds]
        return float(statistics.median(ratios))


def _run_race(full: _Sweeps, half: _Sweeps, seed: int) -> Race:
    """Rounds on the graph, on one of half its size, and of networkit's searches, alternating."""
    graph, rounds = networkit_graph(full.csr), full.num_rounds
    sources = np.random.default_rng(seed).permutation(full.csr.num_nodes)[: rounds * _SEARCHES_PER_ROUND]
    theirs: list[float] = []
    with progress("all pairs", rounds, "rounds") as bar:
        for number, chosen in enumerate(np.array_split(sources, rounds)):
            full.run(number)
            half.run(number)
            theirs += [time_search(graph, int(source)) for source in chosen]
            bar.advance()
    return Race(full.rounds, full.sizes, theirs, _count_mismatches(graph, full.counts(), sources))


def _count_mismatches(graph: Any, counts: NDArray[np.int32], sources: NDArray[np.int64]) -> int:
    """Number of the sources' counts that differ from networkit's distances."""
    levels, wrong = counts.shape[1], 0
    for source in sources:
        hops = search_distances(graph, int(source))
        expected = np.bincount(hops[(hops >= 0) & (hops < levels)], minlength=levels)
        wrong += int((counts[source] != expected).sum())
    return wrong


def _time_full_depth(layout: Layout) -> float:
    """Seconds per source of sweeps without limit, from batches drawn at random."""
    size = layout.csr.num_nodes
    searcher, sums, seconds = Searcher(layout.csr), Sums.zeros(size, 1), []
    starts = np.arange(0, size, MAX_SOURCES)
    for begin in np.random.default_rng(0).permutation(starts)[:_FULL_DEPTH_BATCHES]:
        batch = layout.sources(None)[begin : begin + MAX_SOURCES]
        start = time.perf_counter()
        searcher.sweep(batch, NO_LIMIT, sums)
        seconds.append((time.perf_counter() - start) / len(batch))
    return statistics.mean(seconds)


def _warm_up() -> None:
    """Load or compile the kernels before anything is timed."""
    layout = lay_out(power_law_graph(100))
    Searcher(layout.csr).sweep(layout.sources(None), 2, Sums.zeros(100, 2))
