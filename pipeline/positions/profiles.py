"""Distance profiles: how many nodes every node sees at 1, 2, …, K hops.

Legend: n nodes, K counted hops, s sources.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.positions.search import MAX_SOURCES, NO_LIMIT, Sums
from pipeline.positions.search_tasks import Search, run_search
from pipeline.store.arrays import CSR, Ids
from pipeline.store.stage import Stage


@dataclass(frozen=True)
class Profiles:
    """Distance profiles of all nodes.

    Shapes:
        counts: [n, K + 1] int32, column k the sources at k hops (column 0: the node itself, if a source).
        reached, first, second: [n] int64, the number of sources with a path, the sum of their hops and of
            their squared hops; hops beyond `depth` and missing paths are not included.
    """

    counts: NDArray[np.int32]
    reached: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    depth: int
    """Hops that were searched: K, or the longest distance found if the search had no limit."""
    num_sources: int
    batches: int
    resumed_batches: int
    peak_memory_bytes: int


@dataclass(frozen=True)
class Layout:
    """A graph renumbered in Cuthill–McKee order.

    Neighbours end up close together in memory, and sources of one batch share most of their sweep:
    on clustered graphs this alone makes the search ten times as fast.

    Shapes:
        order: [n], the node at each place.
        place: [n], the place of each node.
    """

    csr: CSR
    order: NDArray[np.int32]
    place: NDArray[np.int64]

    def sources(self, nodes: NDArray[np.int64] | None) -> Ids:
        """The places of `nodes`, ascending; of all nodes by default."""
        chosen = np.arange(len(self.order)) if nodes is None else np.sort(self.place[nodes])
        return cast(Ids, chosen.astype(self.csr.indices.dtype))


def lay_out(csr: CSR) -> Layout:
    """Renumber a graph, both directions of every edge, for fast searches."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    matrix = _adjacency(csr)
    order = np.ascontiguousarray(reverse_cuthill_mckee(matrix, symmetric_mode=True)[::-1])
    place = np.empty(csr.num_nodes, dtype=np.int64)
    place[order] = np.arange(csr.num_nodes)
    matrix = matrix[order][:, order]
    matrix.sort_indices()
    renumbered = CSR(matrix.indptr.astype(np.int64), matrix.indices.astype(csr.indices.dtype))
    return Layout(renumbered, order, place)


def compute_profiles(
    layout: Layout,
    *,
    truncate: int,
    full_depth: bool = False,
    sources: NDArray[np.int64] | None = None,
    batch_sources: int = MAX_SOURCES,
    stage: Stage | None = None,
    parallel: bool = True,
) -> Profiles:
    """Count, for every node, the sources at each distance.

    Args:
        layout: The graph, from `lay_out`.
        truncate: K, the number of hops that are counted one by one, after which the search ends.
        full_depth: Continue the search until every reachable node is found.
        sources: Nodes to search from; all by default, which makes the profiles exact.
        batch_sources: Sources that share a sweep, at most 512.
        stage: Keeps the sums of finished groups of batches, so that a killed run continues from them.
        parallel: Run the groups as Ray tasks.
    """
    chosen = layout.sources(sources)
    depth = NO_LIMIT if full_depth else truncate
    search = Search(layout.csr, chosen, depth=depth, levels=truncate, moments=full_depth)
    found = run_search(search, "profiles", batch_sources, stage, parallel)
    itself = np.zeros((layout.csr.num_nodes, 1), dtype=np.int32)
    itself[layout.order[chosen]] = 1
    reached, first, second = moments(found.sums)[:, layout.place]
    return Profiles(
        counts=np.concatenate([itself, found.sums.counts.T[layout.place]], axis=1),
        reached=reached,
        first=first,
        second=second,
        depth=found.depth if full_depth else truncate,
        num_sources=len(chosen),
        batches=found.batches,
        resumed_batches=found.resumed_batches,
        peak_memory_bytes=found.peak_memory_bytes,
    )


def weigh_distances(
    layout: Layout,
    weights: NDArray[np.int64],
    *,
    depth: int | None,
    name: str,
    sources: NDArray[np.int64] | None = None,
    batch_sources: int = MAX_SOURCES,
    stage: Stage | None = None,
    parallel: bool = True,
) -> NDArray[np.int64]:
    """For every node the sums of w_j, and of w_j times hops, over the other sources j within `depth`. [2, n]

    Args:
        layout: The graph, from `lay_out`.
        weights: w, one integer per node; integers make the sums exact and independent of their order.
        depth: Hops after which the search ends; None for no limit.
        name: Distinguishes the files of repeated calls in one stage.
        sources: Nodes to search from; all by default.
        batch_sources: Sources that share a sweep.
        stage: Keeps finished work.
        parallel: Run as Ray tasks.
    """
    search = Search(
        layout.csr,
        layout.sources(sources),
        depth=NO_LIMIT if depth is None else depth,
        levels=0,
        moments=False,
        weights=weights[layout.order],
    )
    found = run_search(search, name, batch_sources, stage, parallel)
    return found.sums.weighted[:, layout.place]


def _adjacency(csr: CSR) -> Any:
    """The graph as a scipy matrix of ones."""
    from scipy.sparse import csr_matrix

    ones = np.ones(csr.num_edges, dtype=np.int8)
    return csr_matrix((ones, csr.indices, csr.indptr), shape=(csr.num_nodes, csr.num_nodes))


def moments(sums: Sums) -> NDArray[np.int64]:
    """Sources with a path, their hops and their squared hops, summed at every node. [3, n]"""
    if len(sums.moments):
        return sums.moments
    hops = np.arange(1, len(sums.counts) + 1, dtype=np.int64)
    return np.stack([hops**power @ sums.counts.astype(np.int64) for power in range(3)])


def count_edge_visits(csr: CSR, counts: NDArray[np.int32]) -> int:
    """Number of edges that searches from every single source would visit, up to K hops.

    A search visits the edges of the nodes within K−1 hops; by symmetry node v is such a node in as
    many searches as it has nodes within K−1 hops.
    """
    within = counts[:, :-1].sum(axis=1, dtype=np.int64)
    return int((csr.degrees() * within).sum())
