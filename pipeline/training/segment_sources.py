"""Segments of a part of the nodes, for training and prediction: from shards, or by a learned order."""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from pipeline.config.loading import Config
from pipeline.orders.sequences import sequence
from pipeline.segments.records import MemorySource, NodeTable, SegmentSource
from pipeline.segments.stage import open_segments
from pipeline.segments.windows import Segments, build_segments
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code, part_of_rows

#: Rows of position regression computed at once when the nodes are reordered.
_POSITION_ROWS = 65_536


def open_part(
    store: GraphStore, split: int, part: str, table: NodeTable, segments: Segments | None
) -> SegmentSource:
    """The segments of a part of a split.

    Args:
        store: The graph.
        split: Number of the split.
        part: `train`, `val`, `test`, or `rest` for the nodes in none.
        table: What is read for each node.
        segments: Segments by a learned order; None for those in the store's shards.
    """
    if segments is None:
        return open_segments(store, split, part, table)
    nodes = np.flatnonzero(part_of_rows(store, split) == part_code(part)).astype(np.int32)
    return MemorySource(segments, nodes, store.labels(), table)


def sequence_segments(
    store: GraphStore,
    config: Config,
    table: NodeTable,
    regression: nn.Module,
    weights: Mapping[str, Tensor],
) -> Segments:
    """Regress the position of every node with the given weights, order the nodes and cut the segments."""
    if table.positions is None:
        raise ValueError("Expected columns that positions are regressed from (got none)")
    device = next(regression.parameters()).device
    with torch.no_grad():
        rows = [
            functional_call(regression, dict(weights), (torch.from_numpy(np.array(part)).to(device),)).cpu()
            for part in _blocks(table.positions, _POSITION_ROWS)
        ]
    csr = store.csr()
    return build_segments(sequence(torch.cat(rows).numpy(), csr), csr, config.segments.length)


def _blocks(rows: NDArray[np.float32], size: int) -> Iterator[NDArray[np.float32]]:
    for start in range(0, rows.shape[0], size):
        yield rows[start : start + size]
