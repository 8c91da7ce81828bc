"""A batch of graphs prepared for the models: arranged, padded, with its propagation operator.

Legend: T nodes of all graphs, B graphs, N nodes of the longest, M edges, D features, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cocn.edges import EdgeList
from cocn.positions import structural_positions
from cocn.propagation import NormalisedAdjacency, normalised_adjacency
from cocn.ties import Ties, automorphism_orbits, colour_rows, tie_ranks

#: Above this many nodes structural positions come from the pipeline, which needs no n×n matrix.
STRUCTURAL_LIMIT = 2048


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """Graphs in the arrangement the models work in. Build one with :func:`prepare` and reuse it every step.

    Attributes:
        x: [T, D] node features in arranged order, or None.
        positions: [T, P] structural positions in arranged order, or None.
        edges: edges by graph and arranged place.
        adjacency: Ã over all T arranged nodes.
        arrangement: [T] input row of each arranged node.
        slots: [T] place of each arranged node in the padded [B, N] layout; None where nothing is padded.
        lengths: [B] number of nodes of each graph.
        max_length: N.
        orbits: [T] one number shared by all nodes that symmetries exchange; None where there are none.
    """

    x: Tensor | None
    positions: Tensor | None
    edges: EdgeList
    adjacency: NormalisedAdjacency
    arrangement: Tensor
    slots: Tensor | None
    lengths: Tensor
    max_length: int
    orbits: Tensor | None = None
    _over_hops: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def num_graphs(self) -> int:
        return self.lengths.numel()

    @property
    def padded_lengths(self) -> Tensor | None:
        """Lengths where something is padded, else None."""
        return None if self.slots is None else self.lengths

    def pad(self, values_TC: Tensor) -> Tensor:
        """[T, C] → [B, N, C], zeros where padded."""
        if self.slots is None:
            return values_TC.view(self.num_graphs, self.max_length, -1)
        padded = values_TC.new_zeros(self.num_graphs * self.max_length, values_TC.size(-1))
        return padded.index_copy(0, self.slots, values_TC).view(self.num_graphs, self.max_length, -1)

    @property
    def input_slots(self) -> Tensor:
        """[T] place of each node of the input in the padded [B, N] layout."""
        places = torch.arange(self.arrangement.numel(), device=self.arrangement.device)
        slots = places if self.slots is None else self.slots
        return torch.empty_like(slots).scatter_(0, self.arrangement, slots)

    def over_hops(self, x_TD: Tensor, hops: int) -> Tensor:
        """[X, ÃX, …, Ã^K X], [T, D·(1+K)]; for the graph's own features it is computed once and kept."""
        own = x_TD is self.x and not x_TD.requires_grad
        if own and hops in self._over_hops:
            return self._over_hops[hops]
        blocks = [x_TD]
        # What is kept in evaluation must serve training as well.
        with torch.inference_mode(mode=False):
            for _ in range(hops):
                blocks.append(self.adjacency.propagate(blocks[-1]))
            found = torch.cat(blocks, dim=1)
        if own:
            self._over_hops[hops] = found
        return found

    def symmetrise(self, values_TC: Tensor) -> Tensor:
        """Average rows, in the order of the input, over nodes that symmetries of their graph exchange."""
        if self.orbits is None:
            return values_TC
        # Summed in arranged order, so that not even the last bit depends on the input order.
        arranged = values_TC[self.arrangement]
        sums = torch.zeros_like(arranged).index_add(0, self.orbits, arranged)
        counts = torch.bincount(self.orbits, minlength=self.orbits.numel()).clamp(min=1)
        means = (sums / counts[:, None].to(sums.dtype))[self.orbits]
        return torch.empty_like(means).index_copy(0, self.arrangement, means)

    def to(self, device: torch.device | str) -> GraphBatch:
        edges = EdgeList(
            self.edges.graph.to(device),
            self.edges.source.to(device),
            self.edges.target.to(device),
            _move(self.edges.values, device),
            self.edges.symmetric,
        )
        return GraphBatch(
            _move(self.x, device),
            _move(self.positions, device),
            edges,
            self.adjacency.to(device),
            self.arrangement.to(device),
            _move(self.slots, device),
            self.lengths.to(device),
            self.max_length,
            _move(self.orbits, device),
        )


def _move(value: Tensor | None, device: torch.device | str) -> Tensor | None:
    return None if value is None else value.to(device)


def prepare(
    x: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None = None,
    batch: Tensor | None = None,
    positions: Tensor | None = None,
    tie_rank: Tensor | None = None,
    tie_orbit: Tensor | None = None,
    num_nodes: int | None = None,
    ties: Ties = "auto",
    self_loops: bool = True,
    truncate: int | None = None,
    find_orbits: bool = True,
) -> GraphBatch:
    """Arrange a graph or a batch of graphs so that the result does not depend on how nodes are numbered.

    Args:
        x: [T, D] node features.
        edge_index: [2, M].
        edge_attr: [M] weights or [M, E] features.
        batch: [T] graph of each node; None for one graph.
        positions: [T, P] structural positions.
        tie_rank: [T] place of each node within its graph if already known (see :class:`cocn.ArrangeTies`).
        tie_orbit: [T] the first node of its graph that each node can be exchanged with, if already known.
        num_nodes: T where there is neither x nor positions.
        ties: how to arrange nodes (see :func:`cocn.ties.tie_ranks`).
        self_loops: add self-loops to Ã.
        truncate: compute structural positions up to this many hops where none are given (small graphs only).
        find_orbits: look for nodes that symmetries exchange; only node outputs need this.
    """
    num_nodes = _count_nodes(x, edge_index, positions, batch, num_nodes)
    _check_edges(edge_index, num_nodes, edge_attr)
    if batch is None:
        batch = torch.zeros(num_nodes, dtype=torch.long, device=edge_index.device)
    lengths = torch.bincount(batch)
    if not num_nodes or not lengths.all():
        raise ValueError(f"Expected every graph to have nodes (got {lengths.tolist()} nodes)")
    max_length = int(lengths.max())
    edge_values = None if edge_attr is None else edge_attr.unsqueeze(1) if edge_attr.dim() == 1 else edge_attr
    if tie_rank is None:
        colours = colour_rows(x, positions)
        tie_rank = _of_each_graph(tie_ranks, edge_index, edge_values, batch, lengths, colours, ties)
        if find_orbits:
            tie_orbit = _of_each_graph(
                automorphism_orbits, edge_index, edge_values, batch, lengths, colours, ties
            )
    arrangement = (batch * max_length + tie_rank).argsort()
    arranged = torch.empty_like(arrangement).scatter_(
        0, arrangement, torch.arange(num_nodes, device=arrangement.device)
    )
    starts = lengths.cumsum(0) - lengths
    local = torch.arange(num_nodes, device=arrangement.device) - starts[batch[arrangement]]
    edges = _arrange_edges(edge_index, edge_values, batch, arranged, local, num_nodes)
    if positions is not None:
        positions = positions[arrangement]
    elif truncate is not None:
        # In arranged order: a dense solve rounds differently for every numbering.
        positions = _structural_positions(edges, lengths, truncate)
    even = bool((lengths == max_length).all())
    weight = edge_values[:, 0] if edge_values is not None and edge_values.size(1) == 1 else None
    return GraphBatch(
        x=None if x is None else x[arrangement],
        positions=positions,
        edges=edges,
        adjacency=normalised_adjacency(
            arranged[edge_index], num_nodes, None if weight is None else weight.detach().abs(), self_loops
        ),
        arrangement=arrangement,
        slots=None if even else batch[arrangement] * max_length + local,
        lengths=lengths,
        max_length=max_length,
        orbits=None if tie_orbit is None else _number_orbits(tie_orbit, batch, arrangement, max_length),
    )


def _structural_positions(edges: EdgeList, lengths: Tensor, truncate: int) -> Tensor:
    rows = []
    for graph, size in enumerate(lengths.tolist()):
        if size > STRUCTURAL_LIMIT:
            raise ValueError(
                f"Expected 'positions' for graphs of more than {STRUCTURAL_LIMIT} nodes (got {size} nodes)"
            )
        own = edges.of_graph(graph)
        rows.append(structural_positions(torch.stack([own.source, own.target]), size, truncate))
    return torch.cat(rows).to(torch.get_default_dtype())


def _count_nodes(
    x: Tensor | None,
    edge_index: Tensor,
    positions: Tensor | None,
    batch: Tensor | None,
    num_nodes: int | None,
) -> int:
    sizes = {
        name: value.size(0)
        for name, value in (("x", x), ("positions", positions), ("batch", batch))
        if value is not None
    }
    if num_nodes is not None:
        sizes["num_nodes"] = num_nodes
    if len(set(sizes.values())) > 1:
        raise ValueError(f"Expected the same number of nodes everywhere (got {sizes})")
    if not sizes:
        return int(edge_index.max()) + 1 if edge_index.numel() else 0
    return next(iter(sizes.values()))


def _check_edges(edge_index: Tensor, num_nodes: int, edge_attr: Tensor | None) -> None:
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        raise ValueError(
            "Expected 'edge_index' to be integers of shape [2, M] "
            f"(got {edge_index.dtype} {list(edge_index.shape)})"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise ValueError(
            f"Expected 'edge_index' to hold node ids from 0 to {num_nodes - 1} "
            f"(got {int(edge_index.min())} to {int(edge_index.max())})"
        )
    if edge_attr is not None and edge_attr.size(0) != edge_index.size(1):
        raise ValueError(
            f"Expected 'edge_attr' to have {edge_index.size(1)} rows, one per edge (got {edge_attr.size(0)})"
        )


def _of_each_graph(
    search: Callable[[Tensor, int, Tensor | None, Tensor | None, Ties], Tensor],
    edge_index: Tensor,
    edge_values: Tensor | None,
    batch: Tensor,
    lengths: Tensor,
    colours: Tensor | None,
    ties: Ties,
) -> Tensor:
    """Search each graph on its own and concatenate the results over the nodes of all graphs."""
    if lengths.numel() == 1:
        return search(edge_index, batch.numel(), colours, edge_values, ties)
    found = torch.empty_like(batch)
    edge_graph = batch[edge_index[0]]
    for graph in range(lengths.numel()):
        nodes = (batch == graph).nonzero().squeeze(1)
        chosen = edge_graph == graph
        own_values = None if edge_values is None else edge_values[chosen]
        own_edges = torch.searchsorted(nodes, edge_index[:, chosen].contiguous())
        own_colours = None if colours is None else colours[nodes]
        found[nodes] = search(own_edges, nodes.numel(), own_colours, own_values, ties)
    return found


def _number_orbits(tie_orbit: Tensor, batch: Tensor, arrangement: Tensor, max_length: int) -> Tensor | None:
    """Orbits of the arranged nodes of all graphs; None where every node is its own orbit."""
    numbers = (batch * max_length + tie_orbit)[arrangement].unique(return_inverse=True)[1]
    return None if int(numbers.max()) + 1 == numbers.numel() else numbers


def _arrange_edges(
    edge_index: Tensor,
    edge_values: Tensor | None,
    batch: Tensor,
    arranged: Tensor,
    local: Tensor,
    num_nodes: int,
) -> EdgeList:
    """Edges between arranged nodes, sorted, so that sums over them do not depend on the input order."""
    source, target = arranged[edge_index]
    keys = source * num_nodes + target
    order = keys.argsort(stable=True)
    values = None if edge_values is None else edge_values[order]
    mirrored = (target * num_nodes + source).argsort(stable=True)
    symmetric = torch.equal(keys[order], (target * num_nodes + source)[mirrored])
    if edge_values is not None and values is not None:
        # Two directions that share a value now may differ once values are learned.
        symmetric &= not edge_values.requires_grad and torch.equal(values, edge_values[mirrored])
    return EdgeList(
        graph=batch[edge_index[0]][order],
        source=local[source[order]],
        target=local[target[order]],
        values=values,
        symmetric=symmetric,
    )
