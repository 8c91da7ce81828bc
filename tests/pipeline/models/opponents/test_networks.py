"""Opponents: numbering and batching do not matter, a step lowers the loss, and layers equal PyG's."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor

import cocn
from pipeline.config.opponent_settings import OpponentConfig
from pipeline.config.settings import ModelConfig
from pipeline.models.networks import FAMILY, MODELS
from pipeline.models.opponents import OPPONENTS, Opponent, OpponentGraph, Sizes, build_opponent
from pipeline.models.opponents.blocks import Block, compute_blocks
from pipeline.models.opponents.convolutional import (
    DirectedConvolution,
    GraphConvolution,
    MeanConvolution,
    SumConvolution,
)
from pipeline.models.opponents.linkx import LINKX
from pipeline.models.opponents.operators import make_matrix
from pipeline.runtime.errors import UserError

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

NUM_NODES = 30
#: Directed edges, none twice and none in both directions.
EDGES = np.array([[i, (i + step) % NUM_NODES] for i in range(NUM_NODES) for step in (1, 7)]).T


def adjacency(edges: np.ndarray, num_nodes: int = NUM_NODES) -> sparse.csr_matrix:
    ones = np.ones(edges.shape[1], np.float32)
    return sparse.csr_matrix((ones, (edges[0], edges[1])), (num_nodes, num_nodes))


def graph(edges: np.ndarray = EDGES, order: Tensor | None = None) -> OpponentGraph:
    x = torch.randn(NUM_NODES, 5, generator=torch.Generator().manual_seed(1))
    if order is None:
        return OpponentGraph(x, adjacency(edges))
    return OpponentGraph(x[order], adjacency(order.argsort().numpy()[edges]))


def opponent(name: str, task: str = "node", **recipe: object) -> Opponent:
    torch.manual_seed(0)
    switches = OpponentConfig(attention_heads=2, local_epochs=1, **recipe)  # type: ignore[arg-type]
    settings = ModelConfig(name=name, hidden_channels=8, dropout=0.0, opponent=switches)  # type: ignore[arg-type]
    return build_opponent(settings, Sizes(5, 3, NUM_NODES, task, directed=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", OPPONENTS)
def test_numbering_does_not_matter(name: str) -> None:
    model = opponent(name).eval()
    model.start_epoch(1)
    order = torch.randperm(NUM_NODES, generator=torch.Generator().manual_seed(2))
    plain = model(graph())
    if isinstance(model, LINKX):  # its weights belong to nodes
        model.weight.data = model.weight.data[order]
    torch.testing.assert_close(model(graph(order=order)), plain[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", OPPONENTS)
def test_a_step_lowers_the_loss(name: str) -> None:
    model, whole = opponent(name), graph()
    labels = torch.arange(NUM_NODES) % 3
    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for _ in range(2):
        loss = F.cross_entropy(model(whole), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[1] < losses[0]


@pytest.mark.parametrize("name", [name for name, entry in OPPONENTS.items() if entry.collections])
def test_graphs_of_a_batch_do_not_touch(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    one, two = torch.randn(4, 5, generator=generator), torch.randn(3, 5, generator=generator)
    ring = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3], [1, 0, 2, 1, 3, 2, 3, 0]])
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    model = opponent(name, task="graph").eval()
    together = cocn.prepare(
        torch.cat([one, two]), torch.cat([ring, path + 4], dim=1), batch=torch.tensor([0] * 4 + [1] * 3)
    )
    apart = torch.cat([model(cocn.prepare(one, ring)), model(cocn.prepare(two, path))])
    torch.testing.assert_close(model(together), apart)


@pytest.mark.parametrize("name", OPPONENTS)
def test_answers_to_a_prepared_graph_are_in_the_order_of_its_input(name: str) -> None:
    model = opponent(name).eval()
    both = np.concatenate([EDGES, EDGES[::-1]], axis=1)
    whole = graph(both)
    prepared = cocn.prepare(whole.x, torch.from_numpy(both))
    if isinstance(model, LINKX):
        pytest.skip("its weights belong to nodes, and a prepared graph numbers them anew")
    torch.testing.assert_close(model(prepared), model(whole), rtol=1e-4, atol=1e-5)


def test_convolutions_are_those_of_pyg() -> None:
    from torch_geometric.nn import DirGNNConv, GCNConv, GINConv, SAGEConv

    both = np.concatenate([EDGES, EDGES[::-1]], axis=1)
    whole, one_way = graph(both), graph()
    edges, directed = torch.from_numpy(both.copy()), torch.from_numpy(EDGES)
    settings = ModelConfig(name="gcn", opponent=OpponentConfig(alpha=0.3, norm="none"))
    mine = GraphConvolution(settings, 5, 4)
    theirs = GCNConv(5, 4)
    theirs.lin.weight.data = mine.linear.weight.data
    torch.testing.assert_close(mine(whole.x, whole), theirs(whole.x, edges))

    mean = MeanConvolution(settings, 5, 4)
    sage = SAGEConv(5, 4)
    sage.lin_l.load_state_dict(mean.neighbours.state_dict())
    sage.lin_r.weight.data = mean.own.weight.data
    torch.testing.assert_close(mean(whole.x, whole), sage(whole.x, edges))

    summed = SumConvolution(settings, 5, 4)
    gin = GINConv(summed.mlp)  # draws its weights anew
    torch.testing.assert_close(summed(whole.x, whole), gin(whole.x, edges))

    outward_inward = DirectedConvolution(settings, 5, 4)
    # PyG's messages go from source to target, so its "in" are the nodes that point here.
    dirgnn = DirGNNConv(GCNConv(5, 4, bias=False), alpha=0.3, root_weight=False)
    dirgnn.conv_in.lin.weight.data = outward_inward.inward.weight.data
    dirgnn.conv_out.lin.weight.data = outward_inward.outward.weight.data
    bias = 0.3 * outward_inward.outward.bias + 0.7 * outward_inward.inward.bias
    expected = dirgnn(one_way.x, directed) + bias
    torch.testing.assert_close(outward_inward(one_way.x, one_way), expected)


def test_gradients_of_a_sparse_product_are_those_of_the_dense_one() -> None:
    operator = graph().operator("out")
    x = torch.randn(NUM_NODES, 3, requires_grad=True)
    weights = torch.randn(NUM_NODES, 3)
    (operator.multiply(x) * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    dense = torch.from_numpy(make_matrix(adjacency(EDGES), "out").toarray())
    torch.testing.assert_close(x.grad, dense.T @ weights)


def test_hops_are_averages_of_averages() -> None:
    path = adjacency(np.array([[0, 1, 1, 2], [1, 0, 2, 1]]), 3)
    blocks = (*(Block("features", 1, "mean", hops) for hops in (0, 2)), Block("degrees", 3))
    own, two, degrees = compute_blocks(blocks, np.array([[1], [2], [5]], np.float32), path)
    np.testing.assert_allclose(own, [[1], [2], [5]])
    np.testing.assert_allclose(two, [[3], [2], [3]])
    np.testing.assert_allclose(degrees, np.log1p([[1, 1, 1], [2, 2, 2], [1, 1, 1]]), rtol=1e-6)


def test_polynormer_answers_by_attention_after_its_local_epochs() -> None:
    model = opponent("polynormer").eval()
    model.start_epoch(0)
    local = model(graph())
    model.start_epoch(1)
    assert not torch.allclose(model(graph()), local)
    again = opponent("polynormer").eval()
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(again(graph()), model(graph()))


def test_channels_that_heads_cannot_share_are_one_line() -> None:
    settings = ModelConfig(name="gat", hidden_channels=8, opponent=OpponentConfig(attention_heads=3))
    with pytest.raises(UserError, match=r"multiple of the 3 heads of 'gat' \(got 8\)"):
        build_opponent(settings, Sizes(3, 2, 4, "node", directed=False))


def test_every_name_of_the_configuration_can_be_trained() -> None:
    assert set(MODELS) == set(FAMILY) | set(OPPONENTS)
    assert all(ModelConfig(name=name).name == name for name in MODELS)  # type: ignore[arg-type]
