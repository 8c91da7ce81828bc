"""Arrangement of a graph's nodes that does not depend on how they were numbered.

Ranking breaks ties by the order of the nodes. If that is the input order, the output depends on it,
which voids the permutation-invariance proposition and lets any model "distinguish" two copies of one graph.
So nodes are first arranged canonically (small graphs) or by structure (large ones); everything after that
sees the same tensors whatever the numbering, down to the last bit.

Deviation: the paper leaves ties to the sorting algorithm. Nor does it say that nodes which a symmetry of the
graph exchanges must have equal outputs, though an order separates them: where symmetries are known, the
outputs of such nodes are averaged (see :func:`automorphism_orbits`).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Ties = Literal["auto", "canonical", "structural", "input"]

#: Graphs up to this many nodes are arranged canonically by default.
CANONICAL_LIMIT = 256
#: Rounds of colour refinement on larger graphs.
REFINEMENT_ROUNDS = 4


def tie_ranks(
    edge_index: Tensor,
    num_nodes: int,
    colour_features: Tensor | None = None,
    edge_attr: Tensor | None = None,
    ties: Ties = "auto",
) -> Tensor:
    """Place of each node in an arrangement independent of the input order.

    Args:
        edge_index: [2, M].
        num_nodes: number of nodes.
        colour_features: [N, D] rows that tell nodes apart in addition to the edges, if any.
        edge_attr: [M, E] features that tell edges apart, if any.
        ties: ``canonical`` is exact for every graph (BLISS through igraph); ``structural`` refines colours
            and leaves nodes that refinement cannot tell apart in input order; ``input`` keeps the input
            order.

    Returns:
        [N] ranks.
    """
    ties = _resolve(ties, num_nodes)
    if ties == "input":
        return torch.arange(num_nodes, device=edge_index.device)
    if ties == "canonical":
        return _canonical_ranks(edge_index, num_nodes, colour_features, edge_attr)
    colours = refine_colours(edge_index, num_nodes, colour_features, edge_attr)
    order = colours.argsort(stable=True)
    # Degree comes first, so that tied nodes run from the rim to the core, as far as colours separate them.
    order = order[torch.bincount(edge_index[1], minlength=num_nodes)[order].argsort(stable=True)]
    return torch.empty_like(order).scatter_(0, order, torch.arange(num_nodes, device=order.device))


def colour_rows(*features: Tensor | None) -> Tensor | None:
    """What tells nodes apart in addition to the edges, side by side; None if nothing does."""
    present = [part.detach().double() for part in features if part is not None]
    return torch.cat(present, dim=1) if present else None


def automorphism_orbits(
    edge_index: Tensor,
    num_nodes: int,
    colour_features: Tensor | None = None,
    edge_attr: Tensor | None = None,
    ties: Ties = "auto",
) -> Tensor:
    """[N] the first node that each node can be exchanged with; itself if no symmetry moves it.

    Any order has to put one of two such nodes first, so a model that reads nodes in order tells them apart.
    Averaging over them is the projection onto the functions that do not: it makes node outputs equivariant.
    Symmetries are only searched for where the arrangement is canonical.
    """
    every = torch.arange(num_nodes, device=edge_index.device)
    if _resolve(ties, num_nodes) != "canonical":
        return every
    colours = _node_colours(num_nodes, colour_features)
    if _all_different(colours):
        return every
    graph, colours = _igraph(edge_index, num_nodes, colours, edge_attr)
    generators = torch.tensor(graph.automorphism_group(color=colours.tolist()), dtype=torch.long)
    return _smallest_reachable(generators.view(-1, colours.numel())[:, :num_nodes]).to(every.device)


def _smallest_reachable(generators_GN: Tensor) -> Tensor:
    """Smallest number that each element can be sent to by repeatedly applying the permutations."""
    smallest = torch.arange(generators_GN.size(1))
    while generators_GN.size(0):
        sent = smallest[generators_GN].amin(0)
        following = torch.minimum(smallest, sent)
        following.scatter_reduce_(
            0, generators_GN.flatten(), smallest.expand_as(generators_GN).flatten(), "amin"
        )
        if torch.equal(following, smallest):
            break
        smallest = following
    return smallest


def _resolve(ties: Ties, num_nodes: int) -> Ties:
    if ties == "auto":
        return "canonical" if num_nodes <= CANONICAL_LIMIT else "structural"
    return ties


def _canonical_ranks(
    edge_index: Tensor, num_nodes: int, colour_features: Tensor | None, edge_attr: Tensor | None
) -> Tensor:
    colours = _node_colours(num_nodes, colour_features)
    if _all_different(colours):
        return colours.to(edge_index.device)
    graph, colours = _igraph(edge_index, num_nodes, colours, edge_attr)
    graph.vs["node"] = range(colours.numel())
    # Versions of igraph disagree on the direction of a permutation vector, but not on what applying it does.
    canonical = graph.permute_vertices(graph.canonical_permutation(color=colours.tolist()))
    order = torch.tensor(canonical.vs["node"], dtype=torch.long)
    # Auxiliary vertices have no rank; the real nodes keep their relative order.
    order = order[order < num_nodes]
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(num_nodes))
    return ranks.to(edge_index.device)


def _node_colours(num_nodes: int, colour_features: Tensor | None) -> Tensor:
    """[N] number of each node's row among the distinct rows, in their order."""
    if colour_features is None:
        return torch.zeros(num_nodes, dtype=torch.long)
    return colour_features.detach().cpu().unique(dim=0, return_inverse=True)[1]


def _all_different(colours: Tensor) -> bool:
    return int(colours.max()) + 1 == colours.numel()


def _igraph(
    edge_index: Tensor, num_nodes: int, colours: Tensor, edge_attr: Tensor | None
) -> tuple[Any, Tensor]:
    import igraph

    edges, colours = _as_coloured_graph(edge_index.cpu(), num_nodes, colours, edge_attr)
    return igraph.Graph(n=colours.numel(), edges=edges.t().tolist()), colours


def _as_coloured_graph(
    edge_index: Tensor, num_nodes: int, colours: Tensor, edge_attr: Tensor | None
) -> tuple[Tensor, Tensor]:
    """A plain undirected graph with the same automorphisms.

    A single undirected edge without features stays as it is. Otherwise an edge becomes a path through two
    auxiliary vertices, coloured by its features, the first one at its source.
    """
    keys = (edge_index[0] * num_nodes + edge_index[1]).sort().values
    mirrored = (edge_index[1] * num_nodes + edge_index[0]).sort().values
    if edge_attr is None and torch.equal(keys, mirrored) and bool((keys[1:] > keys[:-1]).all()):
        pairs = edge_index[:, edge_index[0] < edge_index[1]]
        return pairs, _with_loops(edge_index, num_nodes, colours)
    num_edges = edge_index.size(1)
    kinds = torch.zeros(num_edges, dtype=torch.long)
    if edge_attr is not None and num_edges:
        kinds = edge_attr.detach().cpu().reshape(num_edges, -1).unique(dim=0, return_inverse=True)[1]
    start = num_nodes + torch.arange(num_edges)
    end = start + num_edges
    parts = [torch.stack(pair) for pair in ((edge_index[0], start), (start, end), (end, edge_index[1]))]
    offset = int(colours.max()) + 1 if num_nodes else 0
    return torch.cat(parts, dim=1), torch.cat([colours, offset + 2 * kinds, offset + 2 * kinds + 1])


def _with_loops(edge_index: Tensor, num_nodes: int, colours: Tensor) -> Tensor:
    loops = torch.bincount(edge_index[0][edge_index[0] == edge_index[1]], minlength=num_nodes)
    return torch.stack([colours, loops], dim=1).unique(dim=0, return_inverse=True)[1]


def refine_colours(
    edge_index: Tensor, num_nodes: int, colour_features: Tensor | None, edge_attr: Tensor | None = None
) -> Tensor:
    """Integer colours that depend on structure alone: features and degree, then the neighbours' colours.

    The arithmetic is on integers modulo 2⁶⁴, so sums do not depend on the order of neighbours.
    """
    source, target = edge_index
    degree = torch.bincount(target, minlength=num_nodes)
    colours = _mix(degree) if colour_features is None else _mix(degree + _row_hash(colour_features))
    message_salt = 0 if edge_attr is None else _row_hash(edge_attr.reshape(source.numel(), -1))
    for _ in range(REFINEMENT_ROUNDS):
        incoming = torch.zeros_like(colours).index_add_(0, target, _mix(colours[source] + message_salt))
        outgoing = torch.zeros_like(colours).index_add_(0, source, _mix(~colours[target] + message_salt))
        colours = _mix(3 * colours + _mix(incoming) + 5 * _mix(outgoing))
    return colours


def _row_hash(features: Tensor) -> Tensor:
    # Adding 0.0 turns −0.0 into 0.0: equal values with different bits.
    bits = (features.detach().double() + 0.0).contiguous().view(torch.long)
    columns = _mix(torch.arange(1, bits.size(1) + 1, device=bits.device))
    return _mix(bits ^ columns).sum(1)


def _mix(x: Tensor) -> Tensor:
    """Finaliser of a 64-bit hash: every input bit reaches every output bit."""
    for multiplier, shift in ((-0x40A7B892E31B1A47, 31), (-0x6B2FB644ECCEEE15, 29)):
        x = (x ^ (x >> shift)) * multiplier
    return x ^ (x >> 32)
