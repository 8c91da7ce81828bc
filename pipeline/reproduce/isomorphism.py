"""The graph isomorphism test of the paper, with the control it lacks.

An untrained network embeds every graph. Two numbers count: pairs of different graphs whose embeddings agree
(undistinguished), and graphs whose embedding changes when their nodes are renumbered (wrongly
distinguished). Without the second, breaking ties by node number would pass the first test on any data.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import cocn
from cocn.models import OUTPUT_GAIN
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import progress

_PARAMETER_LIMIT = 30_000
#: Embeddings that differ by more than this, summed over channels, are distinct; the literature's threshold.
_TOLERANCE = 1e-3
_NUM_SEEDS = 3
_CHANNELS = 16
_GRAPHS_PER_BATCH = 256
_FILES = (("graph8c", "graph8c/graph8c.g6"), ("sr25", "sr25/sr251256.g6"), ("exp", "EXP/exp.npz"))
NAMES = tuple(name for name, _ in _FILES)


@dataclass(frozen=True)
class Collection:
    """Graphs to tell apart.

    Attributes:
        graphs: edges [2, m] of each graph, both directions.
        sizes: number of nodes of each.
        features: features of the nodes of each, or None.
        pairs: [p, 2] the pairs that differ; None for all pairs.
    """

    name: str
    graphs: Sequence[NDArray[np.int64]]
    sizes: Sequence[int]
    features: Sequence[NDArray[np.float32]] | None = None
    pairs: NDArray[np.int64] | None = None

    @property
    def num_pairs(self) -> int:
        return len(self.graphs) * (len(self.graphs) - 1) // 2 if self.pairs is None else len(self.pairs)


@dataclass(frozen=True)
class Outcome:
    """The result of the test on one collection."""

    undistinguished: int
    wrongly_distinguished: int
    num_graphs: int
    num_pairs: int
    num_parameters: int


def read_collections(root: Path, names: Container[str] = NAMES) -> list[Collection]:
    """The requested ones of Graph8c, sr25 and EXP, from the directory `isomorphism` of the data root.

    Raises:
        UserError: naming the missing file.
    """
    return [
        _read_exp(path) if name == "exp" else _read_all_pairs(name, path)
        for name, path in (
            (name, _existing(root / "isomorphism" / file)) for name, file in _FILES if name in names
        )
    ]


def _read_all_pairs(name: str, path: Path) -> Collection:
    """Graphs of a graph6 file, in which all pairs differ."""
    graphs, size = read_graph6(path)
    return Collection(name, graphs, [size] * len(graphs))


def read_graph6(path: Path) -> tuple[list[NDArray[np.int64]], int]:
    """Graphs of a graph6 file whose graphs all have the same number of nodes, at most 62.

    A line holds n + 63, then the upper triangle column by column, six bits per character, offset by 63.
    """
    lines = path.read_bytes().split()
    size = lines[0][0] - 63
    codes = np.array([list(line[1:]) for line in lines], dtype=np.uint8) - 63
    bits = np.unpackbits(codes[..., None], axis=-1)[..., 2:].reshape(len(lines), -1)
    column, row = np.tril_indices(size, -1)
    upper = bits[:, : column.size].astype(bool)
    return [np.stack([np.r_[row[b], column[b]], np.r_[column[b], row[b]]]) for b in upper], size


def _read_exp(path: Path) -> Collection:
    """EXP: graphs 2i and 2i+1 are a pair that 1-WL cannot tell apart."""
    with np.load(path) as arrays:
        nodes, edges = arrays["node_ptr"], arrays["edge_ptr"]
        graphs = [arrays["edge_index"][:, a:b].astype(np.int64) for a, b in pairwise(edges)]
        features = np.split(arrays["x"].astype(np.float32), nodes[1:-1])
    pairs = np.arange(len(graphs)).reshape(-1, 2)
    return Collection("exp", graphs, np.diff(nodes).tolist(), features, pairs)


def run_test(collection: Collection, seed: int = 0) -> Outcome:
    """Embed every graph and a renumbered copy of it, and count.

    Args:
        collection: the graphs.
        seed: seed of the networks and of the numberings.
    """
    draw = np.random.default_rng(seed)
    numberings = [draw.permutation(size) for size in collection.sizes]
    models = [make_network(collection, number) for number in range(seed, seed + _NUM_SEEDS)]
    with progress(collection.name, 2 * len(collection.graphs), "graphs") as bar:
        embeddings = []
        for copies in (None, numberings):
            parts = []
            for part in _embed(models, collection, copies):
                parts.append(part)
                bar.advance(part.shape[1])
            embeddings.append(np.concatenate(parts, axis=1))
    moved = (np.abs(embeddings[0] - embeddings[1]).sum(-1) > _TOLERANCE).any(0)
    close = set.intersection(*(close_pairs(each, collection.pairs) for each in embeddings[0]))
    parameters = sum(parameter.numel() for parameter in models[0].parameters())
    return Outcome(len(close), int(moved.sum()), len(moved), collection.num_pairs, parameters)


def make_network(collection: Collection, seed: int) -> cocn.CoCN:
    """An untrained Expanded CoCN of at most 30 K parameters whose kernels reach far along the sequence."""
    largest = max(collection.sizes)
    kernel_size = 5 if largest <= 9 else 9
    torch.manual_seed(seed)
    model = cocn.ExpandedCoCN(
        0 if collection.features is None else collection.features[0].shape[1],
        _CHANNELS,
        _CHANNELS,
        task="graph",
        num_heads=8,
        kernel_size=kernel_size,
        unit_layers=min(-(-(largest - 1) // (kernel_size - 1)), 4),
        pool_layers=0,
        position_source="implicit",
        ties="canonical",
    )
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > _PARAMETER_LIMIT:
        raise ValueError(f"Expected at most {_PARAMETER_LIMIT} parameters (got {count})")
    with torch.no_grad():
        # Outputs start near zero for training; here they are embeddings, compared in absolute terms.
        model.out.weight.div_(OUTPUT_GAIN)
    return model.double().eval()


def _embed(
    models: Sequence[cocn.CoCN], collection: Collection, numberings: Sequence[NDArray[np.int64]] | None
) -> Iterator[NDArray[np.float64]]:
    """Embeddings [networks, graphs, channels], batch by batch.

    With numberings, node i of a graph becomes numbering[i]. Arranging the nodes takes most of the time and
    does not depend on the network's parameters, so it is done once for all networks.
    """
    for start in range(0, len(collection.graphs), _GRAPHS_PER_BATCH):
        chosen = range(start, min(start + _GRAPHS_PER_BATCH, len(collection.graphs)))
        offsets = np.cumsum([0, *(collection.sizes[g] for g in chosen)])
        edges, features = [], []
        for offset, graph in zip(offsets, chosen, strict=False):
            numbering = None if numberings is None else numberings[graph]
            own = collection.graphs[graph]
            edges.append((own if numbering is None else numbering[own]) + offset)
            if collection.features is not None:
                rows = collection.features[graph]
                features.append(rows if numbering is None else rows[np.argsort(numbering)])
        batch = torch.repeat_interleave(
            torch.arange(len(chosen)), torch.tensor([collection.sizes[g] for g in chosen])
        )
        x = torch.from_numpy(np.concatenate(features)).double() if features else None
        with torch.inference_mode():
            edge_index = torch.from_numpy(np.concatenate(edges, axis=1))
            prepared = models[0].prepare(x, edge_index=edge_index, batch=batch)
            yield torch.stack([model(prepared) for model in models]).numpy()


def close_pairs(embeddings: NDArray[np.float64], pairs: NDArray[np.int64] | None) -> set[tuple[int, int]]:
    """Pairs whose embeddings agree; to avoid comparing all pairs, they are found with a k-d tree."""
    if pairs is not None:
        distance = np.abs(embeddings[pairs[:, 0]] - embeddings[pairs[:, 1]]).sum(1)
        return {(int(first), int(second)) for first, second in pairs[distance <= _TOLERANCE]}
    from scipy.spatial import KDTree

    return set(KDTree(embeddings).query_pairs(_TOLERANCE, p=1.0))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise UserError(f"Expected '{path}' to exist: pass the directory of the datasets as --data-root")
    return path
