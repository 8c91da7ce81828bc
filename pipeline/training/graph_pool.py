"""A collection of graphs in memory, arranged once, from which batches are gathered by index arithmetic.

Legend: G graphs of the collection, B of a batch, T nodes, M edges, P pairs.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cocn import GraphBatch
from cocn.edges import EdgeList
from cocn.graphs import STRUCTURAL_LIMIT
from cocn.propagation import NormalisedAdjacency, normalised_adjacency
from pipeline.config.loading import Config
from pipeline.features.arrangement import STAGE, ArrangementSummary
from pipeline.models.networks import position_source
from pipeline.runtime.errors import UserError
from pipeline.storage.files import column_array
from pipeline.store.arrays import Task
from pipeline.store.cleaning import edge_sources
from pipeline.store.graph_store import GraphStore


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of nodes of a batch, or of all graphs.

    Attributes:
        number: [P] number of each pair in the store.
        graph: [P] graph of each, by its place in the batch.
        ends: [2, P] nodes of the batch.
        label: [P] whether the link exists.
    """

    number: Tensor
    graph: Tensor
    ends: Tensor
    label: Tensor


@dataclass(frozen=True, eq=False)
class GraphPool:
    """All graphs of a collection, with their nodes in the arrangement that the models work in.

    Attributes:
        nodes: [G + 1] where the nodes of each graph begin.
        edges: [G + 1] where the edges of each graph begin.
        source: [M] first end of each edge, numbered within its graph.
        target: [M] second end.
        adjacency: Ã of the union, its columns numbered within their graph.
        x: [T, D] features, or None.
        positions: [T, C] structural positions, or None.
        orbit: [T] the first node of its graph that each node can be exchanged with; None if not needed.
        pairs: [G + 1] where the pairs of each graph begin; None without pairs.
        ends: [2, P] their nodes, numbered within their graph.
        pair_label: [P].
        values: [M, E] weights or features of the edges; None for plain edges.
        symmetric: whether both directions of every edge have the same values.
    """

    nodes: Tensor
    edges: Tensor
    source: Tensor
    target: Tensor
    adjacency: NormalisedAdjacency
    x: Tensor | None
    positions: Tensor | None
    orbit: Tensor | None = None
    pairs: Tensor | None = None
    ends: Tensor | None = None
    pair_label: Tensor | None = None
    values: Tensor | None = None
    symmetric: bool = True

    @property
    def lengths(self) -> Tensor:
        """[G] nodes of each graph."""
        return self.nodes.diff()

    def by_size(self, graphs: Tensor) -> Tensor:
        """The given graphs, the smallest first."""
        return graphs[self.lengths[graphs].argsort(stable=True)]

    def parts_of_like_size(self, graphs: Tensor) -> list[Tensor]:
        """The given graphs by size; split into parts of similar size (within a factor of two) if a single
        batch would be more than half padding."""
        by_size = self.by_size(graphs)
        lengths = self.lengths[by_size]
        if int(lengths[-1]) * lengths.numel() <= 2 * int(lengths.sum()):
            return [by_size]
        counts = torch.bincount(lengths.clamp(min=1).log2().long())
        return list(torch.split(by_size, counts[counts > 0].tolist()))

    def batch(self, graphs: Tensor) -> GraphBatch:
        """The given graphs, as :func:`cocn.prepare` would return them, with nodes numbered as arranged."""
        rows, node_graph, starts, lengths = ranges(self.nodes, graphs)
        edges, edge_graph, _, _ = ranges(self.edges, graphs)
        max_length = int(lengths.max())
        slots = None
        if int(lengths.min()) < max_length:
            slots = torch.arange(rows.numel(), device=rows.device) + (
                torch.arange(graphs.numel(), device=rows.device) * max_length - starts
            ).index_select(0, node_graph)
        return GraphBatch(
            x=None if self.x is None else self.x.index_select(0, rows),
            positions=None if self.positions is None else self.positions.index_select(0, rows),
            edges=EdgeList(
                edge_graph,
                self.source[edges],
                self.target[edges],
                None if self.values is None else self.values[edges],
                symmetric=self.symmetric,
            ),
            adjacency=self._adjacency(rows, starts[node_graph]),
            arrangement=torch.arange(rows.numel(), device=rows.device),
            slots=slots,
            lengths=lengths,
            max_length=max_length,
            orbits=None if self.orbit is None else self.orbit[rows] + starts[node_graph],
        )

    def _adjacency(self, rows: Tensor, row_start: Tensor) -> NormalisedAdjacency:
        """The rows of Ã of the given nodes, whose graphs begin at `row_start` in the batch."""
        entries, owner, starts, counts = ranges(self.adjacency.indptr, rows)
        indices = self.adjacency.indices[entries] + row_start.index_select(0, owner)
        indptr = torch.cat([starts, (starts + counts)[-1:]])
        return NormalisedAdjacency(indptr, indices, self.adjacency.values[entries])

    def pairs_of(self, graphs: Tensor) -> LabelledPairs:
        """The pairs of the given graphs, with nodes numbered as in the batch of those graphs."""
        if self.pairs is None or self.ends is None or self.pair_label is None:
            raise ValueError("Expected a collection with pairs (got one without)")
        number, owner, _, _ = ranges(self.pairs, graphs)
        lengths = self.lengths[graphs]
        starts = lengths.cumsum(0) - lengths
        return LabelledPairs(number, owner, self.ends[:, number] + starts[owner], self.pair_label[number])

    def count_pairs(self, graphs: Tensor) -> int:
        """The number of pairs of the given graphs."""
        return 0 if self.pairs is None else int(self.pairs.diff()[graphs].sum())


def ranges(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The entries `indptr[r]` … `indptr[r + 1]` − 1 of every row r, one after the other.

    Returns:
        entries [E], for each its row's index in `rows` [E], where each row begins among them [R], and the
        number of entries per row [R].
    """
    first = indptr[rows]
    counts = indptr[rows + 1] - first
    starts = counts.cumsum(0) - counts
    owner = torch.repeat_interleave(counts)
    entries = torch.arange(owner.numel(), device=owner.device) + (first - starts).index_select(0, owner)
    return entries, owner, starts, counts


def _check_positions(store: GraphStore) -> None:
    """Refuse a collection with graphs that are too large for structural positions.

    Raises:
        UserError: if there are any.
    """
    without = store.manifest.num_graphs - store.summary(STAGE, ArrangementSummary).with_positions
    if without:
        raise UserError(
            f"Expected 'model.positions' to be explicit, as {without} of the graphs of {store.manifest.name} "
            f"have more than {STRUCTURAL_LIMIT:,} nodes (got implicit)"
        )


def read_pool(store: GraphStore, config: Config, task: Task, device: torch.device) -> GraphPool:
    """Read a collection whose graphs were arranged (stage `arrangement`)."""
    csr, starts = store.csr(), store.graph_indptr()
    places = store.table(f"{STAGE}/places.arrow")
    place = column_array(places, "place").astype(np.int64)
    start_of_node = np.repeat(starts[:-1], np.diff(starts))
    arranged = start_of_node + place
    order = np.empty_like(arranged)
    order[arranged] = np.arange(store.num_nodes)
    row, column = arranged[edge_sources(csr)], arranged[csr.indices]
    sorting = np.lexsort((column, row))
    row, column = row[sorting], column[sorting]
    values, weight, symmetric = None, None, True
    stored = store.edge_values()
    if stored is not None:
        values = torch.from_numpy(stored[sorting])
        weight = values[:, 0].abs() if values.size(1) == 1 else None
        symmetric = bool(torch.equal(values, values[torch.from_numpy(np.lexsort((row, column)))]))
    union = normalised_adjacency(
        torch.from_numpy(np.stack([row, column])), store.num_nodes, weight, config.model.self_loops
    )
    start_of_row = torch.from_numpy(np.repeat(start_of_node, union.indptr.diff().numpy()))
    x = torch.from_numpy(store.features()[order]) if store.manifest.num_features else None
    positions = None
    if position_source(config.model) == "implicit":
        _check_positions(store)
        columns = store.array(f"{STAGE}/positions.arrow", "positions")
        positions = torch.from_numpy(columns[order])
    orbit = pairs = ends = pair_label = None
    if task == "link":
        first = column_array(places, "orbit").astype(np.int64)
        orbit = torch.from_numpy(place[start_of_node + first][order])
        given = store.pairs()
        pairs = torch.from_numpy(np.array(given.indptr))
        ends = torch.from_numpy(place[given.ends.T])
        pair_label = torch.from_numpy(np.array(given.labels))
    tensors = (
        torch.from_numpy(np.array(starts)),
        torch.from_numpy(csr.indptr[starts].astype(np.int64)),
        torch.from_numpy(row - start_of_node[row]),
        torch.from_numpy(column - start_of_node[row]),
        NormalisedAdjacency(union.indptr, union.indices - start_of_row, union.values),
        x,
        positions,
        orbit,
        pairs,
        ends,
        pair_label,
        values,
    )
    on_device = (None if value is None else value.to(device) for value in tensors)
    return replace(GraphPool(*on_device), symmetric=symmetric)  # type: ignore[arg-type]
