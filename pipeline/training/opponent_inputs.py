"""What opponents read of a store: rows with blocks of columns, or the whole graph."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.config.loading import Config
from pipeline.models.opponents import Opponent, OpponentGraph, RowBatch
from pipeline.models.opponents.blocks import compute_blocks
from pipeline.models.opponents.inputs import adjacency_matrix, degree_features
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.store.arrays import CSR, Floats
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.training.graph_pool import ranges

#: Rows that the scale of features is taken from.
_SCALE_ROWS = 20_000


@dataclass(frozen=True)
class RowTable:
    """Blocks of columns of all nodes, in memory or mapped into it.

    Attributes:
        blocks: [n, D] arrays.
        indptr: [n + 1] where the neighbours of each node begin; None where nobody asks.
        indices: [E] neighbours.
    """

    blocks: tuple[Floats, ...]
    indptr: Tensor | None = None
    indices: Tensor | None = None

    def take(self, rows: NDArray[np.int64], device: torch.device) -> RowBatch:
        """Some rows, in the order they are asked for."""
        blocks = tuple(torch.from_numpy(np.take(block, rows, axis=0)).to(device) for block in self.blocks)
        if self.indptr is None or self.indices is None:
            return RowBatch(blocks)
        entries, _, offsets, _ = ranges(self.indptr, torch.from_numpy(rows))
        return RowBatch(blocks, self.indices[entries].to(device), offsets.to(device))


def read_rows(store: GraphStore, config: Config, model: RowOpponent) -> RowTable:
    """The blocks that a model reads, propagated here and now where they depend on the graph."""
    blocks = model.blocks
    if (
        all(block.content == "features" and not block.hops for block in blocks)
        and store.manifest.num_features
    ):
        values = [store.features() for _ in blocks]
    else:
        asks = any(block.content == "labels" for block in blocks)
        labels = _training_labels(store, config) if asks else None
        adjacency = _read_adjacency(store)
        x = store.features() if store.manifest.num_features else degree_features(adjacency)
        values = compute_blocks(blocks, x, adjacency, labels)
    if not model.reads_neighbours:
        return RowTable(tuple(values))
    csr = store.undirected_csr()
    indptr, indices = (torch.from_numpy(np.array(part, dtype=np.int64)) for part in (csr.indptr, csr.indices))
    return RowTable(tuple(values), indptr, indices)


def _training_labels(store: GraphStore, config: Config) -> Floats:
    """[n, C] one-hot classes of the training nodes, zeros for all others."""
    known = np.zeros((store.num_nodes, store.manifest.num_classes), dtype=np.float32)
    rows = rows_of_part(store.split(config.data.split), "train", config.data.protocol)
    labels = store.labels()[rows]
    known[rows[labels >= 0], labels[labels >= 0]] = 1.0
    return known


def _read_adjacency(store: GraphStore, visible: CSR | None = None) -> object:
    """The graph as a SciPy matrix; row i holds the nodes that i points at."""
    csr = store.csr() if visible is None else visible
    return adjacency_matrix(csr.indptr, csr.indices)


def read_opponent_graph(store: GraphStore, device: torch.device) -> OpponentGraph:
    """The whole graph, as it is."""
    adjacency = _read_adjacency(store)
    x = np.array(store.features()) if store.manifest.num_features else degree_features(adjacency)
    return OpponentGraph(torch.from_numpy(x).to(device), adjacency)


def fit_scale(model: Opponent, store: GraphStore) -> None:
    """Take the scale of the features of a model that reads graphs."""
    if store.manifest.num_features and model.scale.mean.numel():
        model.scale.fit(torch.from_numpy(store.features()[scale_rows(store.num_nodes)]))


def scale_rows(num_rows: int) -> NDArray[np.int64]:
    """Rows that a scale is taken from: all, or as many as suffice, evenly spread."""
    return np.unique(np.linspace(0, num_rows - 1, min(num_rows, _SCALE_ROWS)).astype(np.int64))
