"""`cocn bench positions`: all-pairs profiles by shared sweeps against networkit's search from each source."""

import math
import statistics
import time
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import CSR
from pipeline.graphs import Generator, networkit_graph, power_law_graph, search_distances, time_search
from pipeline.profiles import Layout, arrange, count_edge_visits
from pipeline.progress import progress
from pipeline.search import MAX_SOURCES, NO_LIMIT, Searcher, Sums

ROUNDS = 8
SEARCHES_PER_ROUND = 4
FULL_DEPTH_BATCHES = 12


@dataclass(frozen=True)
class PositionsBenchmark:
    """One core each, the same graph, in turns."""

    nodes: int
    edges: int
    """Undirected."""
    truncate: int
    generator: str
    speedup_vs_networkit: float
    """Time of networkit's search from one source over ours, as a share of all pairs; the median round."""
    speedup_full_depth: float
    """The same with our search going on until every reachable node is found, as networkit's does."""
    mismatches: int
    """Counts that differ from those of networkit's distances, over all sources that it searched from."""
    edge_visits_per_second: float
    """Edges that searches from every single source would have looked at, for each second of ours."""
    growth: float
    """Exponent with which our time a source grows with the graph, from half its size; 1 is linear."""
    seconds_all_pairs: float
    milliseconds_per_source: float
    networkit_milliseconds_per_source: float


def run(
    nodes: int = 100_000, *, truncate: int = 4, seed: int = 0, generator: Generator = "hyperbolic"
) -> PositionsBenchmark:
    """Measure exact truncated profiles of a power-law graph.

    Args:
        nodes: Size of the graph.
        truncate: Hops that are counted.
        seed: Seed of the graph and of the sources that networkit searches from.
        generator: Which model draws the graph.
    """
    warm_up()
    csr = power_law_graph(nodes, seed=seed, generator=generator)
    start = time.perf_counter()
    layout = arrange(csr)
    arranging = time.perf_counter() - start
    race = run_race(csr, layout, truncate, seed)
    per_source = (arranging + sum(race.ours)) / nodes
    visits = count_edge_visits(csr, race.counts)
    return PositionsBenchmark(
        nodes=nodes,
        edges=csr.num_edges // 2,
        truncate=truncate,
        generator=generator,
        speedup_vs_networkit=race.speedup(arranging / nodes),
        speedup_full_depth=statistics.median(race.theirs) / time_full_depth(layout),
        mismatches=race.mismatches,
        edge_visits_per_second=visits / (arranging + sum(race.ours)),
        growth=math.log2(per_source / time_half(nodes // 2, truncate, seed, generator)),
        seconds_all_pairs=arranging + sum(race.ours),
        milliseconds_per_source=1e3 * per_source,
        networkit_milliseconds_per_source=1e3 * statistics.median(race.theirs),
    )


@dataclass(frozen=True)
class Race:
    """Seconds of our rounds, of the sources in each, and of networkit's searches in between."""

    counts: np.ndarray
    ours: list[float]
    sizes: list[int]
    theirs: list[float]
    mismatches: int

    def speedup(self, overhead: float) -> float:
        """Median over the rounds; `overhead` is what a source costs besides its sweep."""
        rounds = zip(
            self.ours, self.sizes, np.array_split(np.array(self.theirs), len(self.ours)), strict=True
        )
        return statistics.median(
            float(theirs.mean()) / (seconds / size + overhead) for seconds, size, theirs in rounds
        )


def run_race(csr: CSR, layout: Layout, truncate: int, seed: int) -> Race:
    """All batches in rounds, and after each round a few of networkit's searches."""
    size = csr.num_nodes
    graph, searcher, sums = networkit_graph(csr), Searcher(layout.csr), Sums.zeros(size, truncate)
    batches = [layout.sources(None)[i : i + MAX_SOURCES] for i in range(0, size, MAX_SOURCES)]
    rounds = [part for part in np.array_split(np.arange(len(batches)), ROUNDS) if len(part)]
    sources = np.random.default_rng(seed).permutation(size)[: len(rounds) * SEARCHES_PER_ROUND]
    ours, sizes, theirs = [], [], []
    with progress("all pairs", len(batches), "batches") as bar:
        for number, part in enumerate(rounds):
            start = time.perf_counter()
            for batch in part:
                searcher.sweep(batches[batch], truncate, sums)
            ours.append(time.perf_counter() - start)
            sizes.append(sum(len(batches[batch]) for batch in part))
            chosen = sources[number * SEARCHES_PER_ROUND : (number + 1) * SEARCHES_PER_ROUND]
            theirs += [time_search(graph, int(source)) for source in chosen]
            bar.advance(len(part))
    counts = np.concatenate([np.ones((size, 1), dtype=np.int32), sums.counts.T[layout.place]], axis=1)
    wrong = 0
    for source in sources:
        hops = search_distances(graph, int(source))
        expected = np.bincount(hops[(hops >= 0) & (hops <= truncate)], minlength=truncate + 1)
        wrong += int((counts[source] != expected).sum())
    return Race(counts, ours, sizes, theirs, wrong)


def time_full_depth(layout: Layout) -> float:
    """Seconds a source of sweeps without limit, from batches drawn at random."""
    size = layout.csr.num_nodes
    searcher, sums, seconds = Searcher(layout.csr), Sums.zeros(size, 1), []
    starts = np.arange(0, size, MAX_SOURCES)
    for begin in np.random.default_rng(0).permutation(starts)[:FULL_DEPTH_BATCHES]:
        batch = layout.sources(None)[begin : begin + MAX_SOURCES]
        start = time.perf_counter()
        searcher.sweep(batch, NO_LIMIT, sums)
        seconds.append((time.perf_counter() - start) / len(batch))
    return statistics.mean(seconds)


def time_half(nodes: int, truncate: int, seed: int, generator: Generator) -> float:
    """Seconds a source of all pairs on a graph of `nodes` nodes."""
    csr = power_law_graph(nodes, seed=seed, generator=generator)
    start = time.perf_counter()
    layout = arrange(csr)
    searcher, sums = Searcher(layout.csr), Sums.zeros(nodes, truncate)
    for begin in range(0, nodes, MAX_SOURCES):
        searcher.sweep(layout.sources(None)[begin : begin + MAX_SOURCES], truncate, sums)
    return (time.perf_counter() - start) / nodes


def warm_up() -> None:
    """Load or compile the kernels before anything is timed."""
    layout = arrange(power_law_graph(100))
    Searcher(layout.csr).sweep(layout.sources(None), 2, Sums.zeros(100, 2))
