"""Where a loader reads records: Arrow shards mapped into memory, or segments built in memory.

Legend: n nodes, R records, U distinct nodes, H heads, b segment length, W words, D features, P positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pipeline.segments.windows import Segments, Windows
from pipeline.store.graph_store import GraphStore


@dataclass(frozen=True)
class Records:
    """Rows read from a source.

    Shapes:
        node: [R]
        label: [R], −1 where unknown
    """

    node: NDArray[np.integer]
    label: NDArray[np.int64]
    windows: Windows


@dataclass(frozen=True)
class NodeTable:
    """What the model reads of nodes and edges; columns of several files are kept side by side, not joined.

    Shapes:
        features: arrays [n, D_i], read of every node of a window
        positions: [n, P] or None
        edge_values: [m, E] by edge id, or None for plain edges
        blocks: arrays [n, B_i], read only for the nodes of records; empty for models that read windows only
    """

    features: Sequence[NDArray[np.floating]]
    positions: NDArray[np.float32] | None = None
    edge_values: NDArray[np.float32] | None = None
    blocks: Sequence[NDArray[np.floating]] = ()

    def __post_init__(self) -> None:
        rows = {array.shape[0] for array in (*self.features, *self.blocks)}
        if len(rows) != 1:
            raise ValueError(
                f"Expected 'features' to be arrays with equal numbers of rows (got {sorted(rows)})"
            )

    def require_nodes(self, num_nodes: int) -> None:
        """Refuse a table of another graph, whose rows would be read as if they belonged to this one."""
        rows = (*self.features, *self.blocks)[0].shape[0]
        if rows != num_nodes or (self.positions is not None and self.positions.shape[0] != num_nodes):
            raise ValueError(f"Expected 'table' to have a row for each of the {num_nodes} nodes (got {rows})")

    @property
    def num_features(self) -> int:
        return sum(array.shape[1] for array in self.features)

    @property
    def num_block_columns(self) -> int:
        return sum(array.shape[1] for array in self.blocks)

    def gather(self, ids: NDArray[np.integer], out: NDArray[np.float32]) -> None:
        """Copy the features of the nodes `ids` into `out`, [U, D]."""
        gather_columns(self.features, ids, out)


class SegmentSource(Protocol):
    """Rows that can be read in any order; a row is a node with its segments of all heads."""

    @property
    def num_rows(self) -> int: ...

    @property
    def table(self) -> NodeTable: ...

    def take(self, rows: NDArray[np.int64]) -> Records:
        """The records of the given rows, in that order."""


class MemorySource:
    """Segments in memory, for positions that are learned and reordered while training.

    Args:
        segments: The result of `build_segments`.
        nodes: The nodes that are rows, such as the training nodes.
        labels: Class of every node of the graph, [n].
        table: Features of the nodes.
    """

    def __init__(
        self, segments: Segments, nodes: NDArray[np.integer], labels: NDArray[np.int64], table: NodeTable
    ) -> None:
        table.require_nodes(labels.size)
        self.segments = segments
        self.table = table
        self._nodes = nodes
        self._labels = labels

    @property
    def num_rows(self) -> int:
        return int(self._nodes.size)

    def take(self, rows: NDArray[np.int64]) -> Records:
        nodes = self._nodes[rows]
        return Records(node=nodes, label=self._labels[nodes], windows=self.segments.windows(nodes))


@dataclass(frozen=True)
class Shard:
    """The columns of one file, memory-mapped, not copied."""

    node: NDArray[np.int32]
    label: NDArray[np.int64]
    ids: NDArray[np.int32]
    bits: NDArray[np.int64]
    edges: NDArray[np.integer] | None


class ShardSource:
    """The shards of one part of a store.

    Args:
        store: The store.
        names: Files of the part, in order.
        heads: Number of heads per record.
        length: Segment length (b).
        table: Features of the nodes.
    """

    def __init__(
        self, store: GraphStore, names: Sequence[str], heads: int, length: int, table: NodeTable
    ) -> None:
        table.require_nodes(store.num_nodes)
        self.table = table
        self._heads = heads
        self._length = length
        self._shards = [_open_shard(store, name) for name in names]
        self._starts = np.cumsum([0, *(shard.node.size for shard in self._shards)])

    @property
    def num_rows(self) -> int:
        return int(self._starts[-1])

    def take(self, rows: NDArray[np.int64]) -> Records:
        homes = np.searchsorted(self._starts, rows, side="right") - 1
        present = np.unique(homes)
        if present.size == 1:
            return self._records(self._shards[present[0]], rows - self._starts[present[0]])
        parts = [
            self._records(self._shards[home], rows[homes == home] - self._starts[home]) for home in present
        ]
        back = np.argsort(np.argsort(homes, kind="stable"), kind="stable")
        return _reorder(parts, back)

    def _records(self, shard: Shard, rows: NDArray[np.int64]) -> Records:
        chosen = _as_slice(rows)
        shape = (rows.size, self._heads)
        edges = shard.edges
        windows = Windows(
            ids=shard.ids[chosen].reshape(*shape, self._length),
            words=shard.bits[chosen].reshape(*shape, -1),
            edges=None if edges is None else edges[chosen].reshape(*shape, self._length, self._length),
        )
        return Records(node=shard.node[chosen], label=shard.label[chosen], windows=windows)


def _open_shard(store: GraphStore, name: str) -> Shard:
    """Map a shard; its digest is checked on first use."""
    has_edges = "edges" in store.table(name).column_names
    return Shard(
        node=cast("NDArray[np.int32]", store.array(name, "node")),
        label=cast("NDArray[np.int64]", store.array(name, "label")),
        ids=cast("NDArray[np.int32]", store.array(name, "ids")),
        bits=cast("NDArray[np.int64]", store.array(name, "bits")),
        edges=cast("NDArray[np.int32]", store.array(name, "edges")) if has_edges else None,
    )


def gather_columns(
    arrays: Sequence[NDArray[np.floating]], ids: NDArray[np.integer], out: NDArray[np.float32]
) -> None:
    """Copy rows of several mapped matrices side by side into `out`, whatever their precision."""
    if len(arrays) == 1 and arrays[0].dtype == out.dtype:
        gather_rows(cast("NDArray[np.float32]", arrays[0]), ids, out)
        return
    start = 0
    for array in arrays:
        stop = start + array.shape[1]
        out[:, start:stop] = np.take(array, ids, axis=0)
        start = stop


def gather_rows(array: NDArray[np.float32], ids: NDArray[np.integer], out: NDArray[np.float32]) -> None:
    """Copy rows of a mapped matrix; several times faster than indexing with an array."""
    # Ids come from the store, and "clip" avoids the copy of `out` that "raise" makes.
    np.take(array, ids, axis=0, out=out, mode="clip")


def _as_slice(rows: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """A slice if the rows are consecutive, so that the mapped columns are viewed instead of copied."""
    if rows.size and rows[-1] - rows[0] == rows.size - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def _reorder(parts: list[Records], back: NDArray[np.int64]) -> Records:
    edges = [part.windows.edges for part in parts if part.windows.edges is not None]
    windows = Windows(
        ids=np.concatenate([part.windows.ids for part in parts])[back],
        words=np.concatenate([part.windows.words for part in parts])[back],
        edges=np.concatenate(edges)[back] if edges else None,
    )
    return Records(
        node=np.concatenate([part.node for part in parts])[back],
        label=np.concatenate([part.label for part in parts])[back],
        windows=windows,
    )
