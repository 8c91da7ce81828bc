"""The arrangement of a PyG dataset, computed once."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose

from cocn import ArrangeTies, ExpandedCoCN
from tests.cocn.cases import random_graph


def data_set(channels: int) -> list[Data]:
    graphs = [random_graph(seed, n, n, features=0, channels=channels) for seed, n in enumerate((6, 9, 4))]
    return [Data(edge_index=g.edge_index, edge_attr=g.edge_attr, num_nodes=g.num_nodes) for g in graphs]


@pytest.mark.parametrize("channels", [0, 1])
def test_batches_bring_their_arrangement(channels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_default_dtype(torch.float64)
    model = ExpandedCoCN(0, 4, 2, task="graph", num_heads=2, kernel_size=3)
    plain = data_set(channels)
    expected = model(Batch.from_data_list(plain))
    arranged = [Compose([ArrangeTies()])(data) for data in plain]
    assert not hasattr(plain[0], "tie_rank")
    monkeypatch.setattr("cocn.graphs.tie_ranks", None)  # must not be called again
    assert torch.equal(model(Batch.from_data_list(arranged)), expected)


def test_weights_and_features_tell_nodes_apart() -> None:
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    light = Data(edge_index=path, edge_weight=torch.tensor([1.0, 1, 2, 2]), num_nodes=3)
    heavy = Data(edge_index=path, edge_weight=torch.tensor([2.0, 2, 1, 1]), num_nodes=3)
    assert ArrangeTies()(light).tie_rank.tolist() == ArrangeTies()(heavy).tie_rank.flip(0).tolist()
    first = Data(edge_index=path, x=torch.tensor([[1.0], [0], [0]]))
    last = Data(edge_index=path, x=torch.tensor([[0.0], [0], [1]]))
    assert ArrangeTies()(first).tie_rank.tolist() == ArrangeTies()(last).tie_rank.flip(0).tolist()


def test_repr_names_the_choice() -> None:
    assert repr(ArrangeTies("structural")) == "ArrangeTies(ties='structural')"
