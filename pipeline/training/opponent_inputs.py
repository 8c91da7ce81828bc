"""What opponents read of a store: rows with blocks of columns, or the whole graph."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.features.blocks import open_block
from pipeline.models.opponents import Opponent, OpponentGraph, RowBatch
from pipeline.models.opponents.blocks import Block, compute_blocks
from pipeline.models.opponents.inputs import adjacency_matrix, degree_features
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.store.arrays import Floats
from pipeline.store.graph_store import GraphStore
from pipeline.training.graph_pool import ranges

#: Rows from which the scale of features is estimated.
_SCALE_ROWS = 20_000


@dataclass(frozen=True)
class RowTable:
    """Blocks of columns of all nodes, in memory or memory-mapped.

    Attributes:
        blocks: [n, D] arrays.
        indptr: [n + 1] where the neighbours of each node begin; None if not needed.
        indices: [E] neighbours.
    """

    blocks: tuple[NDArray[np.floating], ...]
    indptr: Tensor | None = None
    indices: Tensor | None = None

    def take(self, rows: NDArray[np.int64], device: torch.device) -> RowBatch:
        """The given rows, in the given order."""
        blocks = tuple(torch.from_numpy(np.take(block, rows, axis=0)).to(device) for block in self.blocks)
        if self.indptr is None or self.indices is None:
            return RowBatch(blocks)
        entries, _, offsets, _ = ranges(self.indptr, torch.from_numpy(rows))
        return RowBatch(blocks, self.indices[entries].to(device), offsets.to(device))


def read_rows(store: GraphStore, model: RowOpponent) -> RowTable:
    """The blocks that a model reads, from the store or propagated here."""
    computed = tuple(block for block in model.blocks if block.content != "stored")
    values = dict(zip(computed, _compute(store, computed), strict=True))
    blocks = tuple(
        open_block(store, block.name) if block.content == "stored" else values[block]
        for block in model.blocks
    )
    if not model.reads_neighbours:
        return RowTable(blocks)
    csr = store.undirected_csr()
    indptr, indices = (torch.from_numpy(np.array(part, dtype=np.int64)) for part in (csr.indptr, csr.indices))
    return RowTable(blocks, indptr, indices)


def _compute(store: GraphStore, blocks: tuple[Block, ...]) -> list[Floats]:
    own = all(block.content == "features" and not block.hops for block in blocks)
    if own and store.manifest.num_features:
        return [store.features() for _ in blocks]
    adjacency = _read_adjacency(store)
    x = store.features() if store.manifest.num_features else degree_features(adjacency)
    return compute_blocks(blocks, x, adjacency)


def _read_adjacency(store: GraphStore) -> object:
    """The graph as a SciPy matrix; row i holds the nodes that i points at."""
    csr = store.csr()
    if csr.ways is not None:
        csr = csr.one_way(1)
    return adjacency_matrix(csr.indptr, csr.indices)


def read_opponent_graph(store: GraphStore, device: torch.device) -> OpponentGraph:
    """The whole graph, unchanged."""
    adjacency = _read_adjacency(store)
    x = np.array(store.features()) if store.manifest.num_features else degree_features(adjacency)
    return OpponentGraph(torch.from_numpy(x).to(device), adjacency)


def fit_scale(model: Opponent, store: GraphStore) -> None:
    """Fit the feature scale of a model that reads graphs."""
    if store.manifest.num_features and model.scale.mean.numel():
        model.scale.fit(torch.from_numpy(store.features()[scale_rows(store.num_nodes)]))


def scale_rows(num_rows: int) -> NDArray[np.int64]:
    """Rows from which a scale is estimated: all, or enough of them, evenly spread."""
    return np.unique(np.linspace(0, num_rows - 1, min(num_rows, _SCALE_ROWS)).astype(np.int64))
