"""The loader of a graph in memory: its batches are the whole graph's, and those of a store."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

import pipeline
from cocn import SegmentBatch, SegmentCoCN, SegmentLoader
from pipeline.config.loading import Config
from pipeline.ingest.generators import minesweeper
from pipeline.orders.stage import OrderParameters, write_orders
from pipeline.positions.stage import PositionParameters, write_positions
from pipeline.segments.loader import SegmentLoader as StoreLoader
from pipeline.segments.stage import open_segments, write_segments
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from tests.pipeline.conftest import Parameters, tiny_config

HEADS, LENGTH = 4, 5


def random_graph(num_nodes: int = 60, num_edges: int = 150, **extra: object) -> Data:
    torch.manual_seed(0)
    edges = torch.randint(0, num_nodes, (2, num_edges))
    return Data(x=torch.randn(num_nodes, 3), edge_index=edges, y=torch.randint(0, 2, (num_nodes,)), **extra)


def model_for(**settings: object) -> SegmentCoCN:
    torch.manual_seed(1)
    return SegmentCoCN(
        3,
        8,
        2,
        num_heads=HEADS,
        segment_length=LENGTH,
        kernel_size=3,
        position_source="fixed",
        **settings,
    )


def dense_windows(loader: SegmentLoader, batch: SegmentBatch) -> torch.Tensor:
    """Node at every place of every window of a batch, identified by its unique features."""
    places = {row.numpy().tobytes(): node for node, row in enumerate(loader.x)}
    ids = torch.tensor([places[row.numpy().tobytes()] for row in batch.x])
    return ids[batch.index]


def test_windows_hold_the_edges_of_the_graph() -> None:
    data = random_graph()
    loader = SegmentLoader(data, 16, heads=HEADS, length=LENGTH)
    matrix = torch.zeros(60, 60, dtype=torch.bool)
    matrix[data.edge_index[0], data.edge_index[1]] = True
    matrix = (matrix | matrix.T) & ~torch.eye(60, dtype=torch.bool)
    seen = []
    for batch in loader:
        ids = dense_windows(loader, batch)
        assert torch.equal(ids[..., 0], batch.node[:, None].expand(-1, HEADS))
        assert torch.equal(batch.adjacency(torch.bool)[..., 0], matrix[ids[..., :, None], ids[..., None, :]])
        assert torch.equal(batch.y, data.y[batch.node])
        seen += batch.node.tolist()
    assert seen == list(range(60))
    assert len(loader) == 4


def test_weights_and_directions_reach_the_windows() -> None:
    data = random_graph(edge_weight=torch.rand(150))
    loader = SegmentLoader(data, 60, heads=HEADS, length=LENGTH, directed=True)
    matrix = torch.zeros(60, 60)
    for (source, target), weight in reversed(
        list(zip(data.edge_index.T.tolist(), data.edge_weight, strict=True))
    ):
        matrix[source, target] = weight
    matrix.fill_diagonal_(0)
    (batch,) = loader
    assert batch.values is not None
    ids = dense_windows(loader, batch)
    assert torch.equal(batch.values[..., 0], matrix[ids[..., :, None], ids[..., None, :]])


def test_outputs_of_batches_are_those_of_the_whole_graph() -> None:
    data = random_graph()
    loader = SegmentLoader(data, 7, heads=HEADS, length=LENGTH)
    model = model_for().eval()
    ranks = np.stack([band.rank for band in loader.segments.bands], axis=1)
    # The orders as positions: the model sorts the nodes by them itself, with all edges at hand.
    both = torch.cat([data.edge_index, data.edge_index.flip(0)], dim=1)
    both = both[:, both[0] != both[1]].unique(dim=1)
    whole = model(data.x, both, positions=torch.from_numpy(ranks).float())
    for batch in loader:
        assert torch.allclose(model(batch), whole[batch.node], atol=1e-5)


def test_nodes_are_chosen_by_mask_or_number_and_shuffled_anew_every_epoch() -> None:
    mask = torch.zeros(60, dtype=torch.bool)
    mask[10:40] = True
    for nodes in (mask, torch.arange(10, 40)):
        loader = SegmentLoader(random_graph(), 8, heads=2, length=4, input_nodes=nodes, shuffle=True, seed=3)
        epochs = [[node for batch in loader for node in batch.node.tolist()] for _ in range(2)]
        assert epochs[0] != epochs[1]
        assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10, 40))


def test_a_graph_without_features_reads_ones_and_hops_stand_beside_features() -> None:
    data = random_graph()
    wide = SegmentLoader(data, heads=2, length=4, hops=2)
    assert wide.x.shape == (60, 9)
    assert torch.equal(wide.x[:, :3], data.x)
    data.num_nodes = 60
    del data.x
    assert torch.equal(SegmentLoader(data, heads=2, length=4).x, torch.ones(60, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"length": 61}, "at most the 60 nodes"),
        ({"length": 65}, "between 2 and 64"),
        ({"batch_size": 0}, "at least 1"),
        ({"positions": torch.zeros(3)}, "one number for each of 60 nodes"),
    ],
)
def test_bad_sizes_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SegmentLoader(random_graph(), **change)


@pytest.fixture
def prepared(tmp_path: Path, local_ray: None) -> tuple[GraphStore, Config]:
    """A board with every stage of the segment model, as `cocn preprocess` makes it."""
    store = create_store(tmp_path / "store", minesweeper(12, num_splits=1), Parameters())
    config = tiny_config(tmp_path, model__heads=HEADS, segments__length=LENGTH)
    write_positions(store, PositionParameters(), reason="test")
    write_orders(store, OrderParameters(heads=HEADS, length=LENGTH))
    write_segments(store, config)
    return store, config


def test_one_epoch_equals_the_stores(prepared: tuple[GraphStore, Config]) -> None:
    store, _ = prepared
    source = open_segments(store, 0, "train")
    rows = torch.from_numpy(np.concatenate([shard.node for shard in source._shards]).astype(np.int64))
    settings = {"shuffle": True, "seed": 5}
    memory = SegmentLoader(
        pipeline.to_pyg(store), 20, heads=HEADS, length=LENGTH, input_nodes=rows, **settings
    )
    weights = []
    for loader in (StoreLoader(source, 20, **settings), memory):
        torch.manual_seed(0)
        model = SegmentCoCN(
            7, 8, 2, num_heads=HEADS, segment_length=LENGTH, kernel_size=3, position_source="fixed"
        )
        optimiser = torch.optim.Adam(model.parameters(), 0.01)
        batches = list(loader)
        for batch in batches:
            F.cross_entropy(model(batch), batch.y).backward()
            optimiser.step()
            optimiser.zero_grad()
        weights.append((batches, model.state_dict()))
    for one, two in zip(weights[0][0], weights[1][0], strict=True):
        for name in ("x", "index", "words", "node", "y"):
            assert torch.equal(getattr(one, name), getattr(two, name))
    assert all(torch.equal(value, weights[1][1][name]) for name, value in weights[0][1].items())


def test_cutting_windows_loads_no_torch() -> None:
    program = (
        "import sys, cocn.loading.covering, cocn.loading.cutting, cocn.loading.batching; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
