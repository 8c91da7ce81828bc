"""What opponents read: rows of nodes, or a graph as it is, not arranged as for the CoCN family."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from cocn import GraphBatch
from pipeline.models.opponents.operators import Kind, SparseOperator, make_matrix


@dataclass(frozen=True, eq=False)
class RowBatch:
    """A batch of nodes, without the graph around them.

    Attributes:
        blocks: [R, D] tensors: own features, averages over neighbours, …
        neighbours: [E] neighbours of all rows, one row after the other; None if not needed.
        offsets: [R] where the neighbours of each row begin.
    """

    blocks: tuple[Tensor, ...]
    neighbours: Tensor | None = None
    offsets: Tensor | None = None


@dataclass(frozen=True, eq=False)
class OpponentGraph:
    """One graph, or the disjoint union of several.

    Attributes:
        x: [T, D] features.
        adjacency: [T, T] SciPy matrix of ones; row i holds the nodes that i points to. No self-loops.
        graph: [T] graph of each node; None for a single one.
        num_graphs: number of graphs.
        both_ways: whether undirected operators count an edge in both directions; false for sampled edges.
    """

    x: Tensor
    adjacency: Any
    graph: Tensor | None = None
    num_graphs: int = 1
    both_ways: bool = True
    _operators: dict[Kind, SparseOperator] = field(default_factory=dict)
    _edges: list[Tensor] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        return self.x.device

    def operator(self, kind: Kind) -> SparseOperator:
        """The operator of a kind, built once."""
        if kind not in self._operators:
            matrix = make_matrix(self.adjacency, kind, both_ways=self.both_ways)
            symmetric = kind in ("symmetric", "sum") and self.both_ways
            self._operators[kind] = SparseOperator.of(matrix, self.device, symmetric=symmetric)
        return self._operators[kind]

    def edge_index(self) -> Tensor:
        """[2, M] edges in both directions and a loop at every node, for attention over neighbours."""
        if not self._edges:
            edges = make_matrix(self.adjacency, "sum", both_ways=self.both_ways).tocoo()
            loops = np.arange(self.x.size(0))
            ends = np.stack([np.concatenate([edges.col, loops]), np.concatenate([edges.row, loops])])
            self._edges.append(torch.from_numpy(ends.astype(np.int64)).to(self.device))
        return self._edges[0]

    def members(self) -> Tensor:
        """[T] graph of each node."""
        if self.graph is not None:
            return self.graph
        return torch.zeros(self.x.size(0), dtype=torch.long, device=self.device)


def adjacency_matrix(indptr: NDArray[np.integer], indices: NDArray[np.integer]) -> Any:
    """A square SciPy matrix of ones from CSR arrays, without self-loops."""
    size = len(indptr) - 1
    matrix = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), (size, size))
    if matrix.diagonal().any():
        matrix = (matrix - sparse.diags(matrix.diagonal(), dtype=np.float32)).tocsr()
        matrix.eliminate_zeros()
    return matrix


def degree_features(adjacency: Any) -> NDArray[np.float32]:
    """[T, 2] ones and logarithms of degrees, for graphs without features."""
    degrees = np.asarray(adjacency.maximum(adjacency.T).sum(1)).ravel()
    return np.stack([np.ones_like(degrees), np.log1p(degrees)], axis=1).astype(np.float32)


def from_batch(batch: GraphBatch) -> OpponentGraph:
    """The graphs of a batch, with nodes numbered as arranged."""
    edges, lengths = batch.edges, batch.lengths
    starts = lengths.cumsum(0) - lengths
    shift = starts[edges.graph] if batch.num_graphs > 1 else 0
    source, target = (edges.source + shift).cpu().numpy(), (edges.target + shift).cpu().numpy()
    size = int(lengths.sum())
    kept = source != target
    ones = np.ones(int(kept.sum()), np.float32)
    adjacency = sparse.csr_matrix((ones, (source[kept], target[kept])), (size, size))
    adjacency.data[:] = 1.0
    x = batch.x
    if x is None:
        x = torch.from_numpy(degree_features(adjacency)).to(lengths.device)
    graph = torch.repeat_interleave(lengths) if batch.num_graphs > 1 else None
    return OpponentGraph(x, adjacency, graph, batch.num_graphs)
