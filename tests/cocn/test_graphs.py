"""Preparation of graphs: arrangement, padding, checks, devices."""

import pytest
import torch
from torch import Tensor

from cocn import GraphBatch, prepare
from tests.cocn.cases import join, random_graph
from tests.conftest import both_directions

KITE = torch.from_numpy(both_directions([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)]))


def tensors_of(batch: GraphBatch) -> list[Tensor]:
    edges, adjacency = batch.edges, batch.adjacency
    optional = [batch.x, batch.positions, batch.slots, batch.orbits, edges.values]
    always = [edges.graph, edges.source, edges.target, adjacency.indptr, adjacency.indices, adjacency.values]
    return [*always, batch.arrangement, batch.lengths, *(part for part in optional if part is not None)]


def test_a_single_graph_keeps_its_features_and_edges() -> None:
    x = torch.arange(6.0)[:, None]
    batch = prepare(x, KITE)
    assert batch.x is not None
    assert torch.equal(batch.x, x[batch.arrangement])
    assert (batch.num_graphs, batch.max_length, batch.slots, batch.padded_lengths) == (1, 6, None, None)
    found = {
        tuple(pair)
        for pair in batch.arrangement[torch.stack([batch.edges.source, batch.edges.target])].t().tolist()
    }
    assert found == {tuple(pair) for pair in KITE.t().tolist()}
    assert batch.edges.symmetric


def test_padding_and_slots_go_there_and_back() -> None:
    graph = join([random_graph(1, 4, 4), random_graph(2, 7, 9), random_graph(3, 1, 0)])
    # Nodes of different graphs may stand in any order.
    mixed = graph.relabel(torch.randperm(12))
    batch = prepare(mixed.x, **mixed.tensors())
    assert batch.lengths.tolist() == [4, 7, 1]
    assert batch.x is not None
    padded = batch.pad(batch.x)
    assert padded.shape == (3, 7, 3)
    assert not padded[0, 4:].any()
    assert not padded[2, 1:].any()
    assert torch.equal(padded.flatten(0, 1)[batch.input_slots], mixed.x)


def test_edges_stay_in_their_graphs() -> None:
    graph = join([random_graph(1, 4, 4), random_graph(2, 7, 9)])
    edges = prepare(graph.x, **graph.tensors()).edges
    assert torch.bincount(edges.graph).tolist() == [8, 18]
    assert edges.source[edges.graph == 0].max() < 4
    assert edges.target[edges.graph == 1].max() < 7


@pytest.mark.parametrize(
    ("edge_attr", "symmetric"),
    [
        (torch.tensor([1.0, 2.0, 1.0, 2.0]), True),
        (torch.tensor([1.0, 2.0, 3.0, 2.0]), False),
        (torch.tensor([1.0, 2.0, 1.0, 2.0]).requires_grad_(), False),
    ],
)
def test_symmetry_is_a_matter_of_values_that_stay(edge_attr: Tensor, symmetric: bool) -> None:
    pairs = torch.tensor([[0, 1, 1, 2], [1, 2, 0, 1]])
    assert prepare(None, pairs, edge_attr, num_nodes=3).edges.symmetric == symmetric


def test_one_direction_is_not_symmetric() -> None:
    assert not prepare(None, KITE[:, :5], num_nodes=6).edges.symmetric


def test_the_number_of_nodes_is_counted_or_told() -> None:
    assert prepare(None, KITE).lengths.tolist() == [5]
    assert prepare(None, KITE, num_nodes=6).lengths.tolist() == [6]
    assert prepare(None, KITE, positions=torch.zeros(7, 1)).lengths.tolist() == [7]


def test_given_ranks_are_used() -> None:
    ranks = torch.tensor([5, 4, 3, 2, 1, 0])
    assert prepare(torch.zeros(6, 1), KITE, tie_rank=ranks).arrangement.tolist() == [5, 4, 3, 2, 1, 0]


def test_structural_positions_are_computed_on_request() -> None:
    batch = prepare(None, KITE, num_nodes=6, truncate=3)
    assert batch.positions is not None
    assert batch.positions.shape == (6, 4)
    assert batch.positions.dtype == torch.get_default_dtype()


def test_structural_positions_of_large_graphs_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cocn.graphs.STRUCTURAL_LIMIT", 5)
    with pytest.raises(
        ValueError, match=r"Expected 'positions' for graphs of more than 5 nodes \(got 6 nodes\)"
    ):
        prepare(None, KITE, num_nodes=6, truncate=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(3, 1)}, r"Expected 'edge_index' to hold node ids from 0 to 2 \(got 0 to 4\)"),
        ({"x": torch.zeros(6, 1), "num_nodes": 7}, "Expected the same number of nodes everywhere"),
        (
            {"x": None, "edge_attr": torch.ones(3)},
            r"Expected 'edge_attr' to have 10 rows, one per edge \(got 3\)",
        ),
        ({"x": None, "edge_index": KITE.double()}, r"Expected 'edge_index' to be integers of shape \[2, M\]"),
        ({"x": None, "edge_index": KITE.t()}, r"Expected 'edge_index' to be integers of shape \[2, M\]"),
        (
            {"x": torch.zeros(6, 1), "batch": torch.tensor([0, 0, 0, 0, 0, 2])},
            "Expected every graph to have nodes",
        ),
        ({"x": torch.zeros(0, 1), "edge_index": KITE[:, :0]}, "Expected every graph to have nodes"),
    ],
)
def test_wrong_input_is_refused(arguments: dict[str, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prepare(**({"edge_index": KITE} | arguments))  # type: ignore[arg-type]


def test_rows_of_exchangeable_nodes_are_averaged() -> None:
    """Nodes 0 and 1 of the kite are mirror images; the second graph, a single edge, is symmetric as well."""
    both = torch.cat([KITE, torch.tensor([[5, 6], [6, 5]])], dim=1)
    batch = prepare(None, both, batch=torch.tensor([0, 0, 0, 0, 0, 1, 1]))
    rows = torch.tensor([[1.0], [3.0], [5.0], [6.0], [7.0], [10.0], [20.0]])
    assert batch.symmetrise(rows).flatten().tolist() == [2, 2, 5, 6, 7, 15, 15]
    assert prepare(torch.randn(6, 1), KITE).orbits is None


def test_every_tensor_moves() -> None:
    graph = join([random_graph(1, 4, 6, channels=2), random_graph(2, 7, 9, channels=2)])
    batch = prepare(
        torch.zeros(11, 1),
        **graph.tensors(),
        positions=torch.zeros(11, 1),
        tie_rank=torch.arange(11),
        tie_orbit=torch.zeros(11, dtype=torch.long),
    )
    moved = batch.to("meta")
    assert len(tensors_of(moved)) == len(tensors_of(batch)) == 13
    assert all(tensor.is_meta for tensor in tensors_of(moved))
    assert moved.edges.symmetric == batch.edges.symmetric
