"""The four models: relabelling, padding, segments, and conventions of a PyG module."""

import io
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

from cocn import CoCN, ExpandedCoCN, SegmentBatch, SegmentCoCN, SparseCoCN, VanillaCoCN
from cocn.models import OUTPUT_GAIN
from cocn.segments import pack_bits, window_adjacency, window_index
from cocn.ties import refine_colours
from tests.cocn.cases import Graph, error, gradients, join, random_graph
from tests.cocn.test_ties import graphs

FAMILY = [VanillaCoCN, ExpandedCoCN, SparseCoCN, SegmentCoCN]
SMALL: dict[str, Any] = {"num_heads": 2, "kernel_size": 3, "unit_layers": 1, "pool_layers": 1}


def build(model: type[CoCN], in_channels: int = 3, out_channels: int = 2, **changes: Any) -> CoCN:
    torch.set_default_dtype(torch.float64)
    if model is SegmentCoCN:
        changes = {"segment_length": 4} | changes
    return model(in_channels, 4, out_channels, **(SMALL | changes)).eval()


def outputs(model: CoCN, graph: Graph) -> Tensor:
    with torch.no_grad():
        return model(graph.x, **graph.tensors())


# Relabelling


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    graphs(),
    st.randoms(use_true_random=False),
    st.sampled_from(["featureless", "tied", "structure only", "implicit", "directed", "weighted"]),
    st.sampled_from(FAMILY),
)
def test_relabelled_graphs_give_the_same_bits(
    drawn: tuple[Tensor, int], random: Any, kind: str, model: type[CoCN]
) -> None:
    """Ties included: in most of these graphs many nodes have the same position."""
    edge_index, num_nodes = drawn
    graph = Graph(None, edge_index, num_nodes=num_nodes)
    changes: dict[str, Any] = {"kernel_size": 2} if num_nodes < 4 else {}
    if model is SegmentCoCN:
        changes["segment_length"] = min(4, num_nodes)
    in_channels = 0
    if kind == "tied":
        in_channels, x = 1, (torch.arange(num_nodes, dtype=torch.float64) % 2)[:, None]
        graph = Graph(x, edge_index, num_nodes=num_nodes)
    if kind == "structure only":
        changes["node_features"] = False
    if kind == "implicit":
        changes["position_source"] = "implicit"
    if kind == "directed":
        graph = Graph(None, edge_index[:, edge_index[0] < edge_index[1]], num_nodes=num_nodes)
    if kind == "weighted":
        weights = 1.0 + edge_index.sum(0).double() % 2
        graph = Graph(None, edge_index, weights, num_nodes=num_nodes)
    order = torch.tensor(random.sample(range(num_nodes), num_nodes))
    torch.manual_seed(0)
    nodes, whole = build(model, in_channels, **changes), build(model, in_channels, task="graph", **changes)
    copy = graph.relabel(order)
    assert torch.equal(outputs(nodes, copy), outputs(nodes, graph)[order])
    assert torch.equal(outputs(whole, copy), outputs(whole, graph))


def test_the_property_is_not_empty() -> None:
    """With ties left in input order the comparison fails, so it can detect the difference."""
    model = build(VanillaCoCN, 0, task="graph", ties="input")
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)]
    cycle = Graph(None, torch.tensor(pairs + [(v, u) for u, v in pairs]).t(), num_nodes=6)
    assert (
        error(outputs(model, cycle.relabel(torch.tensor([0, 2, 4, 1, 3, 5]))), outputs(model, cycle)) > 1e-3
    )


@pytest.mark.parametrize("model", FAMILY)
def test_structural_arrangement_is_exact_where_colours_tell_nodes_apart(model: type[CoCN]) -> None:
    """All features are equal, so that all positions of equal structure tie but for rounding."""
    graph = random_graph(5, 40, 90, features=0)
    assert refine_colours(graph.edge_index, 40, None).unique().numel() == 40
    nodes, whole = (build(model, 0, task=task, ties="structural", smoothness=0) for task in ("node", "graph"))
    ranks = nodes.regress_positions(nodes.prepare(None, **graph.tensors()))
    assert ranks.unique(dim=0).size(0) == 1
    for seed in range(3):
        order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
        copy = graph.relabel(order)
        assert torch.equal(outputs(nodes, copy), outputs(nodes, graph)[order])
        assert torch.equal(outputs(whole, copy), outputs(whole, graph))


@pytest.mark.parametrize("model", FAMILY)
def test_nodes_of_a_batch_may_stand_in_any_order(model: type[CoCN]) -> None:
    graph = join([random_graph(1, 6, 8), random_graph(2, 9, 14)])
    order = torch.randperm(15)
    nodes, whole = build(model), build(model, task="graph")
    assert torch.equal(outputs(nodes, graph.relabel(order)), outputs(nodes, graph)[order])
    assert torch.equal(outputs(whole, graph.relabel(order)), outputs(whole, graph))


# Padding


@pytest.mark.parametrize("model", FAMILY)
@pytest.mark.parametrize("task", ["node", "graph"])
@pytest.mark.parametrize("tau", [0.1, 10.0])
def test_padding_changes_nothing(model: type[CoCN], task: str, tau: float) -> None:
    """A graph gives the same values and gradients alone and in a batch with larger graphs."""
    alone = random_graph(1, 6, 8, channels=1)
    crowd = join([random_graph(2, 20, 40, channels=1), alone, random_graph(3, 11, 14, channels=1)])
    relaxed = {} if model is SparseCoCN else {"tau": tau}
    chosen = build(model, task=task, edge_channels=1, **relaxed)
    own = slice(20, 26) if task == "node" else slice(1, 2)
    one, many = chosen(alone.x, **alone.tensors()), chosen(crowd.x, **crowd.tensors())[own]
    assert error(many, one) < 1e-12
    parameters = list(chosen.parameters())
    for found, expected in zip(gradients(many, parameters), gradients(one, parameters), strict=True):
        assert error(found, expected) < 1e-10


# Segments


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_one_segment_of_full_length_equals_the_whole_graph(tau: float) -> None:
    """For each head, the segment of the first node of its sequence is the sequence itself."""
    graph = random_graph(4, 12, 26)
    whole = build(ExpandedCoCN, task="graph", tau=tau)
    segment = build(SegmentCoCN, tau=tau, segment_length=12)
    segment.load_state_dict(whole.state_dict())
    batch = whole.prepare(graph.x, **graph.tensors())
    first = batch.arrangement[whole.rank_nodes(batch).order_BHN[0, :, 0]]
    expected = whole.embed(batch).view(2, 4)
    found = segment.embed(batch).view(12, 2, 4)[first, torch.arange(2)]
    assert error(found, expected) < 1e-12
    ours = gradients(found, list(segment.parameters()))
    theirs = gradients(expected, list(whole.parameters()))
    assert all(error(one, two) < 1e-11 for one, two in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("position_source", ["explicit", "implicit", "fixed"])
@pytest.mark.parametrize("channels", [0, 2])
def test_batches_of_segments_equal_the_whole_graph(position_source: str, channels: int) -> None:
    graph = random_graph(6, 15, 40, channels=channels)
    model = build(
        SegmentCoCN,
        position_source=position_source,
        propagation="before",
        smoothness=2,
        segment_length=5,
        edge_channels=max(channels, 1),
        truncate=3,
    )
    given_positions = torch.randn(15, 2) if position_source == "fixed" else None
    whole = model.prepare(graph.x, **graph.tensors(), positions=given_positions)
    assert whole.x is not None
    order = model.regress_positions(whole).detach().t().argsort(dim=1, stable=True)
    ranks = order.argsort(1).t()
    records = torch.tensor([3, 14, 0])
    index = window_index(order, ranks, 5)[records]
    adjacency = window_adjacency(whole.edges, ranks, 5, torch.float64)[records]
    positions = {
        "explicit": whole.adjacency.propagate(whole.x, 2),
        "implicit": whole.positions,
        "fixed": None,
    }
    batch = SegmentBatch(
        x=whole.x,
        index=index,
        words=pack_bits(adjacency[..., 0] > 0),
        node=records,
        positions=positions[position_source],
        values=adjacency if channels else None,
    )
    found, expected = model(batch), model(whole)[whole.arrangement[records]]
    assert error(found, expected) < 1e-12
    parameters = list(model.parameters())
    for one, two in zip(gradients(found, parameters), gradients(expected, parameters), strict=True):
        assert error(one, two) < 1e-11


def test_a_segment_longer_than_the_graph_is_refused() -> None:
    graph = random_graph(1, 5, 6)
    with pytest.raises(
        ValueError, match=r"'segment_length' to be at most the 5 nodes of the graph \(got 8\)"
    ):
        build(SegmentCoCN, segment_length=8)(graph.x, **graph.tensors())


# Manners


@pytest.mark.parametrize("model", FAMILY)
def test_data_batches_and_tensors_are_the_same_input(model: type[CoCN]) -> None:
    one, two = random_graph(1, 6, 8, channels=1), random_graph(2, 9, 14, channels=1)
    chosen = build(model)
    data = [Data(g.x, g.edge_index, g.edge_attr) for g in (one, two)]
    weighted = [Data(g.x, g.edge_index, edge_weight=g.edge_attr) for g in (one, two)]
    both = outputs(chosen, join([one, two]))
    with torch.no_grad():
        assert torch.equal(chosen(data[0]), outputs(chosen, one))
        assert torch.equal(chosen(one.x, one.edge_index, edge_attr=one.edge_attr), outputs(chosen, one))
        assert torch.equal(chosen(Batch.from_data_list(data)), both)
        assert torch.equal(chosen(Batch.from_data_list(weighted)), both)
        assert torch.equal(chosen(chosen.prepare(data[0])), outputs(chosen, one))


def test_edge_features_that_the_model_does_not_read_are_left_out() -> None:
    graph = random_graph(1, 6, 8, channels=3)
    model = build(ExpandedCoCN, structure_features=False)
    plain = outputs(model, Graph(graph.x, graph.edge_index))
    with torch.no_grad():
        assert torch.equal(model(Data(graph.x, graph.edge_index, graph.edge_attr)), plain)


@pytest.mark.parametrize("num_edges", [8, 0])
@pytest.mark.parametrize("model", FAMILY)
def test_edge_features_of_another_number_are_refused(model: type[CoCN], num_edges: int) -> None:
    graph = random_graph(1, 6, num_edges, channels=3)
    data = Data(graph.x, graph.edge_index, graph.edge_attr)
    for chosen, channels in ((build(model), 1), (build(model, edge_channels=2), 2)):
        message = rf"Expected 'edge_attr' to have {channels} channels \(got 3\)"
        for form in (data, Batch.from_data_list([data, data])):
            with pytest.raises(ValueError, match=message):
                chosen(form)
        with pytest.raises(ValueError, match=message):
            chosen(graph.x, **graph.tensors())
    assert build(model, edge_channels=3)(data).shape == (6, 2)


@pytest.mark.parametrize("model", FAMILY)
def test_parameters_go_there_and_back_and_can_be_drawn_anew(model: type[CoCN]) -> None:
    graph = random_graph(1, 8, 12)
    one, two = build(model), build(model)
    assert not torch.equal(outputs(one, graph), outputs(two, graph))
    stored = io.BytesIO()
    torch.save(one.state_dict(), stored)
    stored.seek(0)
    two.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(outputs(one, graph), outputs(two, graph))
    before = {name: value.clone() for name, value in two.state_dict().items()}
    torch.manual_seed(0)
    two.reset_parameters()
    constant = {name for name, value in two.state_dict().items() if torch.equal(value, before[name])}
    # Only what starts at a constant may be as it was.
    assert all(name.endswith("bias") or name.startswith("norm") for name in constant)
    one_again = build(model)
    torch.manual_seed(0)
    one_again.reset_parameters()
    assert torch.equal(outputs(one_again, graph), outputs(two, graph))


def test_repr_names_model_sizes_and_task() -> None:
    shown = repr(ExpandedCoCN(7, 16, 5, task="graph", num_heads=4, kernel_size=(3, 5)))
    assert shown.startswith(
        "ExpandedCoCN(\n  7, 16, 5, task='graph', num_heads=4, kernel_size=[3, 5], tau=1.0"
    )
    assert "tau=None" in repr(SparseCoCN(7, 16, 5))


@pytest.mark.parametrize("model", FAMILY)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"node_features": False},
        {"structure_features": False},
        {"position_source": "implicit"},
        {"task": "graph", "kernel_size": (2, 3), "final_layer": True},
        {"propagated_features": 2},
    ],
)
def test_every_parameter_receives_a_gradient(model: type[CoCN], changes: dict[str, Any]) -> None:
    """A missing gradient would make workers that average gradients wait forever."""
    graph = random_graph(1, 12, 30)
    chosen = build(model, **changes)
    chosen(graph.x, **graph.tensors()).square().sum().backward()
    missing = [name for name, parameter in chosen.named_parameters() if parameter.grad is None]
    assert not missing


def test_features_that_are_switched_off_reach_nothing() -> None:
    graph = random_graph(1, 12, 30)
    assert graph.x is not None
    shuffled = Graph(graph.x + 1, graph.edge_index, num_nodes=12)
    for task in ("node", "graph"):
        model = build(ExpandedCoCN, task=task, node_features=False, position_source="implicit", ties="input")
        assert torch.equal(outputs(model, graph), outputs(model, shuffled))
    without_edges = Graph(graph.x, graph.edge_index[:, :0], num_nodes=12)
    model = build(ExpandedCoCN, structure_features=False, smoothness=0, ties="input")
    assert torch.equal(outputs(model, graph), outputs(model, without_edges))


def test_propagated_features_stand_beside_the_others() -> None:
    graph = random_graph(1, 12, 30)
    model = build(ExpandedCoCN, propagated_features=2)
    batch = model.prepare(graph.x, **graph.tensors())
    assert batch.x is not None
    expected = torch.cat([batch.adjacency.propagate(batch.x, steps) for steps in range(3)], dim=1)
    with torch.inference_mode():
        assert torch.equal(model.graph_features(batch), expected)
    assert model.graph_features(batch) is model.graph_features(batch)
    model.train()(batch).sum().backward()  # what evaluation kept serves training


def test_features_with_a_gradient_are_propagated_anew() -> None:
    graph = random_graph(1, 12, 30)
    model = build(ExpandedCoCN, propagated_features=2)
    assert graph.x is not None
    x = graph.x.clone().requires_grad_()
    batch = model.prepare(x, **graph.tensors())
    for _ in range(2):
        (gradient,) = torch.autograd.grad(model.graph_features(batch).square().sum(), x, retain_graph=True)
        assert bool((gradient != 2 * x).any())


@pytest.mark.parametrize("model", FAMILY)
def test_logits_start_near_zero_again_after_a_reset(model: type[CoCN]) -> None:
    chosen = build(model)
    for _ in range(2):
        assert chosen.out.weight.abs().max() <= OUTPUT_GAIN * chosen.out.in_features**-0.5
        assert not chosen.out.bias.any()
        chosen.reset_parameters()


def test_links_are_scored_by_direction() -> None:
    graph = random_graph(1, 12, 30)
    model = build(SparseCoCN, out_channels=6, task="link")
    z = outputs(model, graph)
    assert z.shape == (12, 6)
    pairs = torch.tensor([[0, 5], [5, 0]])
    scores = model.decode(z, pairs)
    torch.testing.assert_close(scores, (z[pairs[0], :3] * z[pairs[1], 3:]).sum(1))


@pytest.mark.parametrize("name", ["dropout", "feature_dropout"])
@pytest.mark.parametrize("model", FAMILY)
def test_dropout_acts_in_training_only(model: type[CoCN], name: str) -> None:
    graph = random_graph(1, 12, 30)
    chosen = build(model, **{name: 0.5})
    assert torch.equal(outputs(chosen, graph), outputs(chosen, graph))
    chosen.train()
    assert not torch.equal(outputs(chosen, graph), outputs(chosen, graph))
    chosen(graph.x, **graph.tensors()).sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in chosen.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"node_features": False, "structure_features": False},
            r"'node_features' or 'structure_features' to be on",
        ),
        ({"tau": 0.0}, r"Expected 'tau' to be positive, or None for the standard permutation \(got 0.0\)"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(CoCN, **changes)


def test_wrong_inputs_are_refused() -> None:
    graph = random_graph(1, 6, 8)
    with pytest.raises(ValueError, match=r"Expected 'x' to have 4 features per node \(got 3\)"):
        build(ExpandedCoCN, in_channels=4, smoothness=0, position_source="implicit")(
            graph.x, **graph.tensors()
        )
    fixed = build(ExpandedCoCN, position_source="fixed")
    with pytest.raises(ValueError, match=r"Expected 'positions' with fixed positions \(got none\)"):
        fixed(graph.x, **graph.tensors())
    with pytest.raises(ValueError, match=r"Expected 'positions' to have 2 columns, one per head \(got 3\)"):
        fixed(graph.x, **graph.tensors(), positions=torch.zeros(6, 3))
    with pytest.raises(ValueError, match=r"Expected 'edge_attr' to have 2 channels \(got 1\)"):
        build(ExpandedCoCN, edge_channels=2)(graph.x, **graph.tensors())
