"""The plots of a store's sequences."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from pipeline.config.loading import Config, PositionConfig, SegmentConfig
from pipeline.segments.adjacency_plots import write_plots
from pipeline.segments.stage import write_segments
from pipeline.storage.files import list_column
from pipeline.store.access import create_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.graph_store import GraphStore, PositionSummary


class Parameters(BaseModel):
    value: int = 1


def shuffled_ring(path: Path, num_nodes: int) -> GraphStore:
    """A ring whose ids are shuffled, and whose first position column follows the ring."""
    names = np.random.default_rng(0).permutation(num_nodes)
    adjacency = np.zeros((num_nodes, num_nodes), dtype=bool)
    adjacency[names, np.roll(names, 1)] = adjacency[np.roll(names, 1), names] = True
    columns = np.zeros((num_nodes, 2), dtype=np.float32)
    columns[names, 0] = np.arange(num_nodes)
    graph = GraphArrays(
        name="ring",
        csr=CSR(np.arange(0, 2 * num_nodes + 1, 2), np.nonzero(adjacency)[1].astype(np.int32)),
        features=np.zeros((num_nodes, 1), dtype=np.float32),
        labels=np.zeros(num_nodes, dtype=np.int64),
        splits=np.zeros((1, num_nodes), dtype=np.int8),
        num_classes=1,
    )
    store = create_store(path, graph, Parameters())
    with store.begin("positions", Parameters()) as stage:
        stage.write_table("columns.arrow", pa.table({"columns": list_column(columns)}))
        stage.commit(PositionSummary(columns=("a", "b")))
    return store


def test_writes_the_image_and_the_table(tmp_path: Path) -> None:
    store = shuffled_ring(tmp_path / "store", 500)
    write_segments(store, Config(positions=PositionConfig(order="profile"), segments=SegmentConfig(length=4)))
    plots = write_plots(store, tmp_path / "plots")
    assert plots.image.read_bytes().startswith(b"\x89PNG")
    assert plots.after.heads[0] == plots.after.union[-1] == 1.0
    assert plots.before.heads[0] < 0.1
    with plots.table.open() as file:
        rows = list(csv.reader(file))
    assert [row[0] for row in rows] == ["order", "input", *(f"head {head}" for head in range(8)), "random"]
    assert rows[2][1:] == ["1.000000", "1.000000", "0.500000"]
