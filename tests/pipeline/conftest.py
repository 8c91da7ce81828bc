"""A tiny store with every stage, for tests of what comes after preprocessing."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel

from pipeline.config.loading import Config, load_config
from pipeline.features.propagation import propagate_features
from pipeline.ingest.generators import minesweeper
from pipeline.segments.stage import write_segments
from pipeline.storage.files import list_column
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore, PositionSummary

SIDE = 12


class Parameters(BaseModel):
    side: int = SIDE


def tiny_config(output: Path, **overrides: object) -> Config:
    """A configuration that trains within a second; overrides by dotted key, with `__` for the dot."""
    values = {
        "output": output,
        "segments.length": 5,
        "segments.shard_rows": 17,
        "model.recipe": "paper",
        "model.heads": 2,
        "model.hidden_channels": 8,
        "model.kernel_size": 3,
        "model.dropout": 0.1,
        "train.epochs": 3,
        "train.batch_size": 20,
        "train.learning_rate": 0.01,
        "resources.cpus_per_worker": 1,
    }
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return load_config(None, values | given)


@pytest.fixture
def tiny_store(tmp_path: Path) -> GraphStore:
    """A minesweeper board with positions by row and by column, propagated features and segments."""
    return prepare_tiny(create_store(tmp_path / "store", minesweeper(SIDE, num_splits=2), Parameters()))


def prepare_tiny(store: GraphStore) -> GraphStore:
    """Run every stage on a board of `SIDE`."""
    with store.begin("positions", Parameters()) as stage:
        cells = np.arange(SIDE * SIDE)
        columns = np.stack([cells, cells % SIDE * SIDE + cells // SIDE], axis=1).astype(np.float32)
        columns = (columns - columns.mean(0)) / columns.std(0)
        stage.write_table("positions.arrow", pa.table({"r_A": columns[:, 0].astype(np.float64)}))
        stage.write_table("columns.arrow", pa.table({"columns": list_column(columns)}))
        stage.commit(PositionSummary(columns=("row", "column")))
    propagate_features(store, 2)
    for split in range(2):
        write_segments(store, tiny_config(store.path.parent, data__split=split))
    return store
