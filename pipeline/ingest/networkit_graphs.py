"""networkit: random graphs of any size, its graph files, and searches used as a reference."""

import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.store.arrays import CSR
from pipeline.store.cleaning import clean_edges, edge_sources

Generator = Literal["hyperbolic", "barabasi-albert"]
_UNREACHABLE = -1


def power_law_graph(
    num_nodes: int,
    *,
    mean_degree: float = 4.67,
    exponent: float = 2.5,
    seed: int = 0,
    generator: Generator = "hyperbolic",
) -> CSR:
    """A random undirected graph whose degrees follow a power law, the same for the same seed.

    Args:
        num_nodes: Size of the graph.
        mean_degree: Target mean degree.
        exponent: Exponent of the degree distribution; always 3 for Barabási–Albert graphs.
        seed: Seed of the graph.
        generator: `hyperbolic` graphs are clustered and have isolated nodes, as social networks do;
            `barabasi-albert` graphs are connected and have no clusters.
    """
    import networkit

    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)  # networkit has one random sequence per thread
    try:
        networkit.engineering.setSeed(seed, False)
        if generator == "hyperbolic":
            source = networkit.generators.HyperbolicGenerator(num_nodes, k=mean_degree, gamma=exponent)
        else:
            source = networkit.generators.BarabasiAlbertGenerator(max(1, round(mean_degree / 2)), num_nodes)
        rows, columns = _export_edges(source.generate())
    finally:
        networkit.setNumberOfThreads(threads)
    # Generators give neighbours nearby ids, unlike real graphs.
    shuffled = np.random.default_rng(seed).permutation(num_nodes)
    return clean_edges(shuffled[rows], shuffled[columns], num_nodes)[0]


def _export_edges(graph: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The edges of a networkit graph as arrays; through a file, the fastest way that networkit offers."""
    import networkit
    from pyarrow import csv

    if graph.numberOfEdges() == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "edges.tsv"
        networkit.graphio.writeGraph(graph, str(path), networkit.Format.EdgeListTabZero)
        table = csv.read_csv(
            path,
            read_options=csv.ReadOptions(column_names=["source", "target"]),
            parse_options=csv.ParseOptions(delimiter="\t"),
            convert_options=csv.ConvertOptions(column_types={"source": pa.int64(), "target": pa.int64()}),
        )
    return table["source"].to_numpy(), table["target"].to_numpy()


def read_binary(path: str) -> tuple[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Nodes and edges of a networkit binary file; damaged ones may crash the process."""
    import networkit

    graph = networkit.readGraph(path, networkit.Format.NetworkitBinary)
    return graph.numberOfNodes(), _export_edges(graph)


def networkit_graph(csr: CSR) -> Any:
    """The undirected networkit graph of a symmetric structure."""
    import networkit

    rows, columns = edge_sources(csr).astype(np.uint64), csr.indices.astype(np.uint64)
    once = rows < columns
    # Without n= networkit silently loses isolated nodes.
    return networkit.GraphFromCoo((rows[once], columns[once]), n=csr.num_nodes, directed=False)


def time_search(graph: Any, source: int) -> float:
    """Seconds of networkit's breadth-first search from one source on one core, without reading results."""
    import networkit

    search = networkit.distance.BFS(graph, source, storePaths=False)
    start = time.perf_counter()
    search.run()
    return time.perf_counter() - start


def search_distances(graph: Any, source: int) -> NDArray[np.int64]:
    """Hops from `source` to every node by networkit's breadth-first search; −1 where there is no path."""
    import networkit

    search = networkit.distance.BFS(graph, source, storePaths=False)
    search.run()
    distances = np.asarray(search.getDistances())
    hops = np.where(distances > len(distances), _UNREACHABLE, distances)
    return hops.astype(np.int64)


def measure_structure(csr: CSR) -> list[NDArray[np.float64]]:
    """Logarithms of core number, PageRank times n, and community size; and the local clustering.

    On one thread: sums over several threads differ in the last bit, and Leiden's communities by more.
    """
    import networkit

    graph = networkit_graph(csr)
    threads = networkit.getMaxNumberOfThreads()
    networkit.setNumberOfThreads(1)
    try:
        networkit.engineering.setSeed(0, False)
        core = networkit.centrality.CoreDecomposition(graph).run().scores()
        rank = networkit.centrality.PageRank(graph, damp=0.85, tol=1e-9).run().scores()
        clustering = networkit.centrality.LocalClusteringCoefficient(graph, turbo=True).run().scores()
        communities = networkit.community.ParallelLeiden(graph, randomize=False).run().getPartition()
    finally:
        networkit.setNumberOfThreads(threads)
    community = np.asarray(communities.getVector(), dtype=np.int64)
    sizes = np.bincount(community)[community]
    return [
        np.log1p(np.asarray(core)),
        np.log(np.asarray(rank) * csr.num_nodes + 1e-9),
        np.asarray(clustering),
        np.log(sizes),
    ]
