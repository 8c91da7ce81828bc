"""A small directed graph in a store, with classes, splits and the positions that blocks need."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel

from pipeline.storage.files import list_column
from pipeline.store.access import create_store
from pipeline.store.arrays import GraphArrays
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore, PositionSummary

NUM_NODES, NUM_CLASSES = 30, 3


class Parameters(BaseModel):
    value: int = 1


def directed_edges() -> NDArray[np.bool_]:
    """The adjacency matrix: node 7 has no edges."""
    matrix = np.random.default_rng(0).random((NUM_NODES, NUM_NODES)) < 0.12
    np.fill_diagonal(matrix, False)
    matrix[7] = matrix[:, 7] = False
    return matrix


def make_store(path: Path, *, labels: NDArray[np.int64] | None = None, num_features: int = 4) -> GraphStore:
    draw = np.random.default_rng(1)
    drawn = draw.integers(0, NUM_CLASSES, NUM_NODES)
    graph = GraphArrays(
        name="small",
        csr=clean_edges(*np.nonzero(directed_edges()), NUM_NODES)[0],
        features=draw.normal(3.0, 2.0, (NUM_NODES, num_features)).astype(np.float32),
        labels=drawn if labels is None else labels,
        splits=np.random.default_rng(2).integers(0, 3, (2, NUM_NODES)).astype(np.int8),
        num_classes=NUM_CLASSES,
    )
    store = create_store(path, graph, Parameters())
    with store.begin("positions", Parameters()) as stage:
        profile = np.random.default_rng(3).integers(0, 9, (NUM_NODES, 5)).astype(np.int32)
        stage.write_table("profile.arrow", pa.table({"profile": list_column(profile)}))
        stage.commit(PositionSummary(columns=()))
    return store


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return make_store(tmp_path / "store")
