"""Collections of graphs: published ones through PyTorch Geometric, and one generated from a seed."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.checks import check_features, check_labels
from pipeline.ingest.published import (
    Published,
    cache_root,
    data_root,
    found_root,
    load_dataset,
    mirrored,
    raw_file,
)
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import CollectionArrays, Integers, Pairs
from pipeline.store.cleaning import EdgeReport, clean_edges, entry_rows
from pipeline.store.splits import cross_validation, random_splits

#: Classes of the generated collection, by the motif attached to a random tree.
_MOTIFS = ("cycle", "clique", "star")
_MOTIF_NODES = 5


@dataclass(frozen=True)
class Graphs:
    """Graphs as a source gives them, concatenated.

    Shapes:
        sizes: [g] nodes of each graph.
        edges: [2, m] node numbers, counted over all graphs.
        features: [n, d], or None.
        labels: [g], −1 where unknown.
        edge_values: [m, e], or None for plain edges.
    """

    sizes: Integers
    edges: Integers
    features: NDArray[Any] | None
    labels: Integers
    edge_values: NDArray[np.float32] | None = None

    @property
    def indptr(self) -> Integers:
        return np.concatenate([[0], np.cumsum(self.sizes)])


def read_collection(
    entry: Published,
    root: Path | None,
    *,
    num_folds: int = 10,
    seed: int = 0,
    shares: tuple[float, float] = (0.5, 0.25),
) -> tuple[CollectionArrays, EdgeReport]:
    """Load a published collection from raw files under `root`, or download it into the cache.

    Args:
        entry: The collection.
        root: The data root.
        num_folds: Folds of the cross-validation for collections without their own split, or random splits for
            those that are not cross-validated either.
        seed: Seed of the folds and splits.
        shares: Shares of training and validation in random splits.

    Raises:
        UserError: If the files are absent and cannot be downloaded, or a class has too few graphs for the
            folds.
    """
    found = raw_file(entry, data_root(root))
    own = (
        mirrored(found_root(entry, found)) if found is not None else nullcontext(cache_root() / entry.folder)
    )
    with own as directory:
        if entry.task == "link":
            return _read_contacts(entry, directory, root)
        graphs = _lay_out([load_dataset(entry, directory, root)])
    random = shares if entry.splits == 0 else None
    return assemble(entry.name, graphs, num_folds=num_folds, seed=seed, shares=random)


def assemble(
    name: str,
    graphs: Graphs,
    *,
    num_folds: int = 10,
    seed: int = 0,
    shares: tuple[float, float] | None = None,
) -> tuple[CollectionArrays, EdgeReport]:
    """Clean the edges, add degrees as features if there are none, and cross-validation or random splits.

    Raises:
        UserError: If a class has too few graphs for the folds.
    """
    num_nodes = int(graphs.sizes.sum())
    csr, report = clean_edges(graphs.edges[0], graphs.edges[1], num_nodes)
    features = one_hot(csr.degrees()[:, None]) if graphs.features is None else graphs.features
    labels = check_labels(name, graphs.labels, len(graphs.sizes))
    try:
        if shares is None:
            splits = cross_validation(labels, num_folds=num_folds, seed=seed)
        else:
            train, validation = shares
            splits = random_splits(
                labels, num_splits=num_folds, train=train, validation=validation, seed=seed
            )
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    collection = CollectionArrays(
        name=name,
        csr=csr,
        features=check_features(name, features, num_nodes),
        indptr=graphs.indptr,
        labels=labels,
        splits=splits,
        num_classes=int(labels.max()) + 1,
        edge_values=None
        if graphs.edge_values is None
        else graphs.edge_values[entry_rows(csr, *graphs.edges)],
    )
    return collection, report


def _lay_out(datasets: list[Any]) -> Graphs:
    """The graphs of a PyG dataset, concatenated."""
    sizes = np.array([data[i].num_nodes for data in datasets for i in range(len(data))], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    edges = _join(datasets, "edge_index", starts)[1]
    known = "x" in datasets[0][0] and datasets[0][0].x is not None
    features = np.concatenate([data._data.x.numpy() for data in datasets]) if known else None
    labelled = "y" in datasets[0][0]
    labels = (
        np.concatenate([data._data.y.numpy() for data in datasets]) if labelled else np.full(len(sizes), -1)
    )
    return Graphs(sizes, edges, features, labels.astype(np.int64))


def _join(datasets: list[Any], key: str, starts: Integers) -> tuple[Integers, Integers]:
    """How many columns of an index each graph has [g], and all of them [2, m], numbered over the union."""
    counts = np.concatenate([np.diff(data.slices[key].numpy()) for data in datasets])
    index = np.concatenate([getattr(data._data, key).numpy() for data in datasets], axis=1)
    return counts, index + np.repeat(starts, counts)


def _read_contacts(
    entry: Published, directory: Path, root: Path | None
) -> tuple[CollectionArrays, EdgeReport]:
    """PCQM-Contact of the Long Range Graph Benchmark: with a split, and labelled pairs in every graph."""
    datasets = [load_dataset(entry, directory, root, split=part) for part in ("train", "val", "test")]
    graphs = _lay_out(datasets)
    csr, report = clean_edges(graphs.edges[0], graphs.edges[1], int(graphs.sizes.sum()))
    counts, ends = _join(datasets, "edge_label_index", graphs.indptr[:-1])
    labels = np.concatenate([data._data.edge_label.numpy() for data in datasets]).astype(np.int64)
    part = np.repeat(np.arange(3, dtype=np.int8), [len(data) for data in datasets])
    if graphs.features is None:
        raise UserError(f"Expected the graphs of '{entry.name}' to have node features (got none)")
    collection = CollectionArrays(
        name=entry.name,
        csr=csr,
        # The columns are categories (element, charge, …); a linear map of their one-hots is an embedding of
        # each.
        features=one_hot(graphs.features),
        indptr=graphs.indptr,
        labels=graphs.labels,
        splits=part[None],
        num_classes=0,
        task="link",
        pairs=Pairs(np.concatenate([[0], np.cumsum(counts)]), ends.T, labels),
    )
    return collection, report


def one_hot(kinds: NDArray[Any]) -> NDArray[np.float32]:
    """One column for every value that occurs in a column of `kinds` [n, c], side by side."""
    blocks = []
    for column in kinds.T:
        values, place = np.unique(column, return_inverse=True)
        block = np.zeros((len(column), len(values)), dtype=np.float32)
        block[np.arange(len(column)), place.reshape(-1)] = 1
        blocks.append(block)
    return np.concatenate(blocks, axis=1)


def motifs(
    num_graphs: int = 300, *, seed: int = 0, num_folds: int = 10
) -> tuple[CollectionArrays, EdgeReport]:
    """Random trees of 8 to 24 nodes, each with a motif of five nodes attached: the class to predict.

    Features are one-hot degrees, as for other collections without features.

    Args:
        num_graphs: Number of graphs; the classes alternate.
        seed: Seed of trees, positions of motifs and folds.
        num_folds: Folds of the cross-validation.
    """
    draw = np.random.default_rng([seed, num_graphs])
    labels = np.arange(num_graphs, dtype=np.int64) % len(_MOTIFS)
    made = [_tree_with_motif(_MOTIFS[label], int(draw.integers(8, 25)), draw) for label in labels]
    sizes = np.array([size for size, _ in made], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    edges = np.concatenate([edges + start for (_, edges), start in zip(made, starts, strict=True)], axis=1)
    return assemble("motifs", Graphs(sizes, edges, None, labels), num_folds=num_folds, seed=seed)


def _tree_with_motif(kind: str, tree_nodes: int, draw: np.random.Generator) -> tuple[int, Integers]:
    """Number of nodes and edges [2, m] of one graph, with its nodes numbered at random."""
    children = np.arange(1, tree_nodes)
    parents = (draw.random(tree_nodes - 1) * children).astype(np.int64)
    nodes = np.arange(_MOTIF_NODES)
    pairs = {
        "cycle": np.stack([nodes, np.roll(nodes, -1)]),
        "clique": np.stack(np.triu_indices(_MOTIF_NODES, 1)),
        "star": np.stack([np.zeros(_MOTIF_NODES - 1, dtype=np.int64), nodes[1:]]),
    }
    bridge = np.array([[draw.integers(tree_nodes)], [tree_nodes]])
    edges = np.concatenate([np.stack([parents, children]), bridge, pairs[kind] + tree_nodes], axis=1)
    size = tree_nodes + _MOTIF_NODES
    return size, draw.permutation(size)[edges]
