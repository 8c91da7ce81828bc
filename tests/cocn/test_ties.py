"""Arrangements that do not depend on how nodes are numbered."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cocn.ties import CANONICAL_LIMIT, Ties, automorphism_orbits, refine_colours, tie_ranks
from tests.conftest import both_directions

CYCLE = torch.from_numpy(both_directions([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)]))
KITE = torch.from_numpy(both_directions([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]))


def relabel(edge_index: Tensor, order: Tensor) -> Tensor:
    """Rename node order[i] to i."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))[edge_index]


def arranged(edge_index: Tensor, ranks: Tensor, edge_attr: Tensor | None = None) -> list[tuple[float, ...]]:
    """Edges with their features in arranged numbers, sorted: the same list for every copy of a graph."""
    rows = ranks[edge_index].double().t()
    if edge_attr is not None:
        rows = torch.cat([rows, edge_attr.double().reshape(edge_index.size(1), -1)], dim=1)
    return sorted(tuple(row) for row in rows.tolist())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Small undirected graphs, regular ones among them, so that ties abound."""
    num_nodes = draw(st.integers(2, 9))
    kind = draw(st.sampled_from(["any", "cycle", "cliques"]))
    if kind == "cycle" and num_nodes > 2:
        pairs = [(node, (node + 1) % num_nodes) for node in range(num_nodes)]
    elif kind == "cliques":
        pairs = [(u, v) for u in range(num_nodes) for v in range(u) if (u < 3) == (v < 3)]
    else:
        every = [(u, v) for u in range(num_nodes) for v in range(u)]
        pairs = draw(st.lists(st.sampled_from(every), unique=True))
    if not pairs:
        return torch.empty(2, 0, dtype=torch.long), num_nodes
    return torch.from_numpy(both_directions([(min(p), max(p)) for p in pairs])), num_nodes


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    graphs(),
    st.randoms(use_true_random=False),
    st.sampled_from(["plain", "coloured", "directed", "weighted"]),
)
def test_canonical_arrangements_of_copies_are_equal(
    graph: tuple[Tensor, int], random: object, kind: str
) -> None:
    edge_index, num_nodes = graph
    colours = edge_attr = None
    if kind == "coloured":
        colours = (torch.arange(num_nodes) % 2).double()[:, None]
    if kind == "directed":
        edge_index = edge_index[:, (edge_index.sum(0) % 3 > 0) | (edge_index[0] < edge_index[1])]
    if kind == "weighted":
        edge_attr = (edge_index.sum(0) % 3).double()
    order = torch.arange(num_nodes)[torch.tensor(random.sample(range(num_nodes), num_nodes))]  # type: ignore[attr-defined]
    copy = relabel(edge_index, order)
    ranks = tie_ranks(edge_index, num_nodes, colours, edge_attr, "canonical")
    ranks_of_copy = tie_ranks(
        copy, num_nodes, None if colours is None else colours[order], edge_attr, "canonical"
    )
    assert sorted(ranks.tolist()) == list(range(num_nodes))
    assert arranged(edge_index, ranks, edge_attr) == arranged(copy, ranks_of_copy, edge_attr)
    if colours is not None:
        assert torch.equal(colours[ranks.argsort()], colours[order][ranks_of_copy.argsort()])


def test_canonical_arrangement_tells_multiplicities_apart() -> None:
    """A path with one doubled end: the doubled edge must end up at the same place from either side."""
    single = torch.from_numpy(both_directions([(0, 1), (1, 2)]))
    doubled = torch.cat([single, single[:, (single == 0).any(0)]], dim=1)
    copy = relabel(doubled, torch.tensor([2, 1, 0]))
    results = {str(arranged(edges, tie_ranks(edges, 3, ties="canonical"))) for edges in (doubled, copy)}
    assert len(results) == 1


def test_canonical_arrangement_sees_loops() -> None:
    looped = torch.cat([CYCLE, torch.tensor([[4], [4]])], dim=1)
    for shift in range(6):
        copy = relabel(looped, (torch.arange(6) + shift) % 6)
        ranks = tie_ranks(copy, 6, ties="canonical")
        assert arranged(copy, ranks) == arranged(looped, tie_ranks(looped, 6, ties="canonical"))


def test_structural_arrangement_reads_from_the_rim_to_the_core() -> None:
    ranks = tie_ranks(KITE, 6, ties="structural")
    degrees = torch.bincount(KITE[0], minlength=6)[ranks.argsort()]
    assert degrees.tolist() == [0, 1, 2, 2, 2, 3]
    # Nodes 0 and 1 are mirror images: nothing but the input tells them apart, and they stand together.
    assert abs(int(ranks[0] - ranks[1])) == 1
    assert refine_colours(KITE, 6, None)[0] == refine_colours(KITE, 6, None)[1]


def test_structural_arrangement_of_copies_agrees_where_colours_differ() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.combinations(torch.arange(60))
    pairs = pairs[torch.randperm(pairs.size(0), generator=generator)[:150]].t()
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    assert refine_colours(edge_index, 60, None).unique().numel() == 60
    order = torch.randperm(60, generator=generator)
    copy = relabel(edge_index, order)
    assert torch.equal(
        tie_ranks(copy, 60, ties="structural"), tie_ranks(edge_index, 60, ties="structural")[order]
    )


def test_colours_read_features_direction_and_edges() -> None:
    plain = refine_colours(CYCLE, 6, None)
    assert plain.unique().numel() == 1
    feature = torch.zeros(6, 1)
    feature[2] = -0.0
    assert torch.equal(refine_colours(CYCLE, 6, feature), refine_colours(CYCLE, 6, torch.zeros(6, 1)))
    feature[2] = 1.0
    assert refine_colours(CYCLE, 6, feature).unique().numel() == 4
    swapped = torch.zeros(6, 2)
    swapped[0, 0] = swapped[1, 1] = 1
    assert refine_colours(CYCLE[:, :0], 6, swapped).unique().numel() == 3
    weights = torch.ones(12)
    weights[0] = 2
    assert refine_colours(CYCLE, 6, None, weights).unique().numel() > 1
    one_way = torch.tensor([[0, 1], [1, 2]])
    assert refine_colours(one_way, 3, None).unique().numel() == 3


@pytest.mark.parametrize(
    ("num_nodes", "ties"), [(CANONICAL_LIMIT, "canonical"), (CANONICAL_LIMIT + 1, "structural")]
)
def test_auto_is_canonical_up_to_its_limit(num_nodes: int, ties: Ties) -> None:
    path = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    edge_index = torch.cat([path, path.flip(0)], dim=1)
    assert torch.equal(tie_ranks(edge_index, num_nodes), tie_ranks(edge_index, num_nodes, ties=ties))


def test_input_order_is_kept_on_request() -> None:
    assert tie_ranks(KITE, 6, ties="input").tolist() == list(range(6))


def test_orbits_by_hand() -> None:
    assert automorphism_orbits(CYCLE, 6).tolist() == [0] * 6
    # The free corners of the kite's triangle are mirror images.
    assert automorphism_orbits(KITE, 6).tolist() == [0, 0, 2, 3, 4, 5]
    assert automorphism_orbits(CYCLE[:, :0], 3).tolist() == [0, 0, 0]


def test_orbits_read_features_direction_and_edges() -> None:
    marked = torch.zeros(6, 1)
    marked[3] = 1
    assert automorphism_orbits(CYCLE, 6, marked).tolist() == [0, 1, 2, 3, 2, 1]
    assert automorphism_orbits(CYCLE, 6, torch.randn(6, 2)).tolist() == list(range(6))
    one_way = torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    assert automorphism_orbits(one_way, 6).tolist() == [0] * 6
    assert automorphism_orbits(one_way[:, :5], 6).tolist() == list(range(6))
    weights = (CYCLE.sum(0) == 5).double()  # edges 0–5 and 2–3
    assert automorphism_orbits(CYCLE, 6, None, weights).tolist() == [0, 1, 0, 0, 1, 0]


def test_orbits_belong_to_canonical_arrangements() -> None:
    for ties in ("structural", "input"):
        assert automorphism_orbits(CYCLE, 6, ties=ties).tolist() == list(range(6))
