"""Which blocks models read: with and without direction, features and classes; all of them are written."""

from pathlib import Path

import numpy as np

from pipeline.features.blocks import open_block
from pipeline.features.own import write_own, write_projection
from pipeline.features.selection import (
    block_widths,
    graph_blocks,
    is_private,
    streaming_blocks,
    window_block,
    write_blocks,
)
from pipeline.ingest.generators import minesweeper
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from tests.pipeline.features.conftest import NUM_NODES, Parameters, make_store

DIRECTED = ("own", "mean-1", "mean-2", "mean-3", "out-1", "in-1", "structure", "labels-1")


def test_a_directed_graph_has_neighbours_of_both_kinds(store: GraphStore) -> None:
    assert streaming_blocks(store, 1) == DIRECTED
    assert graph_blocks(store, 1) == ("own", "structure", "labels-1")
    assert [block for block in DIRECTED if is_private(block)] == ["labels-1"]
    write_blocks(store, DIRECTED)
    widths = block_widths(store, DIRECTED)
    assert widths["own"] == widths["in-1"] == 4
    assert widths["labels-1"] == 6 * 4
    assert all(np.isfinite(open_block(store, block)).all() for block in DIRECTED)


def test_a_graph_without_direction_or_features(tmp_path: Path) -> None:
    board = create_store(tmp_path / "board", minesweeper(6, num_splits=1), Parameters())
    assert streaming_blocks(board, 0) == ("own", "mean-1", "mean-2", "mean-3", "structure", "labels-0")
    assert streaming_blocks(board, 0, labels=False)[-1] == "structure"
    bare = make_store(tmp_path / "bare", num_features=0)
    assert graph_blocks(bare, 0) == ("structure", "labels-0")
    assert window_block(bare) == "structure"


def test_components_keep_the_products_of_wide_features(tmp_path: Path) -> None:
    wide = make_store(tmp_path / "wide", num_features=600)
    write_own(wide)
    write_projection(wide)
    own, projected = (open_block(wide, block).astype(np.float64) for block in ("own", "projected"))
    assert projected.shape == (NUM_NODES, NUM_NODES)
    products, kept = (block @ block.T for block in (own - own.mean(0), projected))
    assert np.corrcoef(products.ravel(), kept.ravel())[0, 1] > 0.999
