"""PyG graphs become stores and come back."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.datasets import FakeDataset, KarateClub

import pipeline
from pipeline.ingest.stage import SourceOptions, ingest
from pipeline.runtime.errors import UserError


def small(**extra: object) -> Data:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]])
    x = torch.arange(10).view(5, 2)
    return Data(x=x, edge_index=edges, y=torch.tensor([0, 1, 0, 1, -1]), **extra)


def masks(rows: list[int]) -> dict[str, torch.Tensor]:
    parts = torch.tensor(rows)
    return {f"{name}_mask": parts == code for code, name in enumerate(("train", "val", "test"))}


def test_a_graph_comes_back_as_it_was(tmp_path: Path) -> None:
    data = small(edge_attr=torch.arange(16.0).view(8, 2), **masks([0, 1, 2, 0, 9]))
    back = pipeline.to_pyg(pipeline.from_pyg(data, tmp_path / "store"))
    assert torch.equal(back.x, data.x.float())
    assert torch.equal(back.y, data.y)
    for name in ("edge_index", "edge_attr", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(back[name], data[name])
    assert pipeline.from_pyg(back, tmp_path / "again").csr().num_edges == 8


def test_several_splits_stand_side_by_side(tmp_path: Path) -> None:
    two = {name: torch.stack([mask, mask.roll(1)], dim=1) for name, mask in masks([0, 1, 2, 0, 9]).items()}
    store = pipeline.from_pyg(small(**two).update({"y": torch.tensor([0, 1, 0, 1, 1])}), tmp_path / "store")
    assert [store.split(number).tolist() for number in range(2)] == [[0, 1, 2, 0, -1], [-1, 0, 1, 2, 0]]
    assert torch.equal(pipeline.to_pyg(store).train_mask, two["train_mask"])
    assert pipeline.to_pyg(store, split=1).train_mask.tolist() == two["train_mask"][:, 1].tolist()


def test_a_graph_without_masks_gets_random_splits_and_the_same_store_is_kept(tmp_path: Path) -> None:
    data = KarateClub()
    store = pipeline.from_pyg(data, tmp_path / "store", num_splits=3)
    assert (store.num_nodes, store.num_splits, store.manifest.num_classes) == (34, 3, 4)
    assert pipeline.from_pyg(data, tmp_path / "store", num_splits=3).digest == store.digest
    with pytest.raises(UserError, match="to hold the requested graph"):
        pipeline.from_pyg(data, tmp_path / "store", num_splits=4)


def test_adj_t_is_read_the_other_way_round(tmp_path: Path) -> None:
    data = Data(x=torch.eye(3), y=torch.tensor([0, 1, 0]))
    data.adj_t = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]).to_sparse()
    store = pipeline.from_pyg(data, tmp_path / "store", directed=True)
    assert pipeline.to_pyg(store).edge_index.tolist() == [[0, 1], [1, 2]]


def test_a_dataset_of_graphs_becomes_a_collection(tmp_path: Path) -> None:
    graphs = FakeDataset(num_graphs=24, avg_num_nodes=8, num_classes=2, task="graph", edge_dim=2)
    store = pipeline.from_pyg(graphs, tmp_path / "store", num_splits=3)
    assert store.is_collection
    assert store.manifest.num_edge_features == 2
    back = pipeline.to_pyg(store)
    assert [data.y.item() for data in back] == [data.y.item() for data in graphs]
    assert [data.num_nodes for data in back] == [data.num_nodes for data in graphs]
    assert all(torch.equal(one.x, two.x) for one, two in zip(back, graphs, strict=True))
    assert back[0].split.shape == (3,)


def hetero() -> HeteroData:
    data = HeteroData()
    data["paper"].x = torch.ones(3, 2)
    data["paper"].y = torch.tensor([0, 1, 0])
    data["author"].x = 2 * torch.ones(2, 4)
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [0, 2]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    return data


def test_types_become_features_of_nodes_and_edges(tmp_path: Path) -> None:
    store = pipeline.from_pyg(hetero(), tmp_path / "store", num_splits=1)
    assert store.features().tolist() == [
        [1, 0, 1, 1, 0, 0, 0, 0],
        [1, 0, 1, 1, 0, 0, 0, 0],
        [1, 0, 1, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 2, 2, 2, 2],
        [0, 1, 0, 0, 2, 2, 2, 2],
    ]
    assert store.labels().tolist() == [0, 1, 0, -1, -1]
    back = pipeline.to_pyg(store)
    kinds = dict(zip(map(tuple, back.edge_index.T.tolist()), back.edge_attr.tolist(), strict=True))
    assert kinds == {
        (0, 3): [1, 0],
        (3, 0): [1, 0],
        (2, 4): [1, 0],
        (4, 2): [1, 0],
        (0, 1): [0, 1],
        (1, 0): [0, 1],
    }


def test_several_labelled_types_need_a_target(tmp_path: Path) -> None:
    data = hetero()
    data["author"].y = torch.tensor([1, 0])
    with pytest.raises(UserError, match="Expected 'target', as several node types have labels"):
        pipeline.from_pyg(data, tmp_path / "store")
    with pytest.raises(UserError, match=r"node type with labels, paper, author \(got 'venue'\)"):
        pipeline.from_pyg(data, tmp_path / "store", target="venue")
    assert pipeline.from_pyg(data, tmp_path / "store", target="author").labels().tolist() == [
        -1,
        -1,
        -1,
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "Expected a PyG Data, HeteroData or a dataset of them \\(got int\\)"),
        ([], "Expected at least one graph"),
        ([small(), small()], "to have one label \\(got shape \\(5,\\) for graph 0\\)"),
        (
            Data(x=torch.tensor([[1.0], [float("nan")]]), edge_index=torch.zeros(2, 0, dtype=torch.long)),
            "to be finite",
        ),
        (Data(edge_index=torch.tensor([[0], [7]]), num_nodes=3), "to hold ids in 0…2"),
        (Data(), "Expected the PyG graph to have 'x', 'num_nodes' or edges"),
    ],
)
def test_bad_graphs_are_refused_in_one_line(tmp_path: Path, data: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pipeline.from_pyg(data, tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_files_of_torch_save_are_read(tmp_path: Path) -> None:
    data = small(**masks([0, 1, 2, 0, 9]))
    graphs = FakeDataset(num_graphs=24, avg_num_nodes=8, num_classes=2, task="graph")
    whole, slices = graphs._data, graphs.slices
    for name, content in {
        "one": data,
        "hetero": hetero(),
        "dict": data.to_dict(),
        "list": list(graphs),
        "dataset": (whole.to_dict(), slices, Data),
    }.items():
        torch.save(content, tmp_path / f"{name}.pt")
    stores = {
        name: ingest(SourceOptions(source=str(tmp_path / f"{name}.pt"), num_splits=3), tmp_path / name).store
        for name in ("one", "hetero", "dict", "list", "dataset")
    }
    assert stores["one"].labels().tolist() == stores["dict"].labels().tolist() == data.y.tolist()
    assert stores["hetero"].num_nodes == 5
    assert stores["list"].is_collection
    assert np.array_equal(stores["list"].features(), stores["dataset"].features())
    assert np.array_equal(stores["list"].csr().indices, stores["dataset"].csr().indices)


class Evil:
    """Unpickling it would run code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.path,))


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch.save({"x": Evil(tmp_path / "ran")}, tmp_path / "evil.pt")
    with pytest.raises(UserError, match="to hold tensors and PyG's own graphs only"):
        ingest(SourceOptions(source=str(tmp_path / "evil.pt")), tmp_path / "store")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", pickle.dumps({"edges": [1, 2]})])
def test_damaged_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "g.pt").write_bytes(content)
    with pytest.raises(UserError, match=r"g\.pt' to"):
        ingest(SourceOptions(source=str(tmp_path / "g.pt")), tmp_path / "store")


def test_importing_the_package_loads_no_torch() -> None:
    program = "import sys, pipeline; sys.exit('torch' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
