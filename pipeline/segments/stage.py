"""The segments stage: sequences of every head, cut into windows, written as shuffled Arrow shards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config
from pipeline.engine.tasks import Handle, Tasks, open_tasks
from pipeline.orders.sequences import Sequences, dense_ranks, from_order, place_head, tie_order
from pipeline.orders.stage import Family, head_positions
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import progress
from pipeline.segments.records import NodeTable, ShardSource
from pipeline.segments.windows import Band, Segments, build_band, check_length
from pipeline.storage.files import list_column
from pipeline.store.arrays import CSR, EDGE_FEATURES_FILE, SPLIT_NAMES
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

# Nodes in no part of a split: nothing trains or is measured on them, but predictions cover them.
_REST = "rest"
PARTS = (*SPLIT_NAMES, _REST)
_SEQUENCES_FILE = "sequences.arrow"

# Cells (nodes × heads) above which Ray's tasks pay for its start.
_PARALLEL_CELLS = 1_000_000


class SegmentSummary(BaseModel):
    """What the manifest says about the segments of a split."""

    model_config = ConfigDict(frozen=True)

    heads: int
    length: int
    rows: dict[str, int]
    """Number of records in each part."""


class SegmentParameters(BaseModel):
    """Everything that determines the bytes of the shards."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    length: int
    heads: int
    shard_rows: int
    seed: int
    split: int
    edge_ids: bool


@dataclass(frozen=True)
class ShardPlan:
    """One shard: its file, and the nodes that are its rows."""

    name: str
    nodes: NDArray[np.int32]


def stage_name(split: int) -> str:
    """Name of the stage, and of its directory in the store, for one of the dataset's splits."""
    return f"segments-{split}"


def segment_parameters(store: GraphStore, config: Config) -> SegmentParameters:
    """The parameters of the segments that a configuration describes."""
    settings = config.segments
    return SegmentParameters(
        family=config.positions.order,
        length=settings.length,
        heads=config.model.heads,
        shard_rows=settings.shard_rows,
        seed=settings.seed,
        split=config.data.split,
        edge_ids=EDGE_FEATURES_FILE in store.manifest.files,
    )


def write_segments(
    store: GraphStore, config: Config, *, replace: bool = False, parallel: bool | None = None
) -> bool:
    """Sequence the nodes of a store by their positions and write the segments of every head.

    A record holds a node, its label and, for each head, the segment that starts at it. Records are
    shuffled within their part of the split. The same parameters give the same bytes; a rerun does nothing,
    and a killed run continues with the missing shards.

    Args:
        store: A store with positions.
        config: Its `segments`, `model.heads`, `positions.order` and `data.split` are read.
        replace: Drop segments that were written with other parameters.
        parallel: Use Ray; by default if the graph is large enough to pay for its start.

    Returns:
        Whether there was anything to do.

    Raises:
        LengthError: if the graph has fewer nodes than a segment.
        StoreError: if positions are missing, or there are segments with other parameters.
    """
    check_length(config.segments.length, store.num_nodes)
    parameters = segment_parameters(store, config)
    name = stage_name(parameters.split)
    with store.begin(name, parameters, requires=("positions",), replace=replace) as stage:
        if stage.done:
            return False
        if parallel is None:
            parallel = store.num_nodes * parameters.heads >= _PARALLEL_CELLS
        plans = list(plan_shards(store, parameters))
        with open_tasks(parallel) as tasks:
            bands = _submit_bands(tasks, store, parameters)
            _write_shards(tasks, stage, plans, store.labels(), parameters.length, bands)
            order = np.stack([tasks.get(band).order for band in bands], axis=1)
        stage.write_table(_SEQUENCES_FILE, pa.table({"order": list_column(order)}))
        rows = {part: sum(plan.nodes.size for plan in plans if _part_of(plan.name) == part) for part in PARTS}
        stage.commit(SegmentSummary(heads=parameters.heads, length=parameters.length, rows=rows))
    return True


def plan_shards(store: GraphStore, parameters: SegmentParameters) -> Iterator[ShardPlan]:
    """Shuffle the nodes of each part and cut them into shards."""
    split = store.split(parameters.split) if store.num_splits else np.full(store.num_nodes, -1, dtype=np.int8)
    for number, part in enumerate(PARTS):
        nodes = np.flatnonzero(split == (number if part != _REST else -1)).astype(np.int32)
        nodes = np.random.default_rng([parameters.seed, number]).permutation(nodes)
        for shard, start in enumerate(range(0, nodes.size, parameters.shard_rows)):
            yield ShardPlan(f"{part}/{shard:05d}.arrow", nodes[start : start + parameters.shard_rows])


def _submit_bands(tasks: Tasks, store: GraphStore, parameters: SegmentParameters) -> list[Handle]:
    """Sequence each head and walk its edges, one task per head; returns handles of `Band`s."""
    csr = store.csr()
    columns = head_positions(
        store,
        parameters.heads,
        length=parameters.length,
        family=cast(Family, parameters.family),
        seed=parameters.seed,
    )
    numbered = [
        tasks.submit(dense_ranks, columns[:, [head]], csr.num_nodes) for head in range(parameters.heads)
    ]
    dense = np.concatenate([tasks.get(handle) for handle in numbered])
    ties = tasks.put(tie_order(dense, csr))
    shared = tasks.put(csr)
    settings = (parameters.length, parameters.edge_ids)
    return [tasks.submit(_build_head, row, ties, shared, *settings) for row in dense]


def _build_head(
    dense: NDArray[np.int32], ties: NDArray[np.int32], csr: CSR, length: int, edge_ids: bool
) -> Band:
    """The sequence and band of one head."""
    order, rank = place_head(dense, ties)
    return build_band(order, rank, csr, length, edge_ids)


def _write_shards(
    tasks: Tasks,
    stage: Stage,
    plans: Sequence[ShardPlan],
    labels: NDArray[np.int64],
    length: int,
    bands: Sequence[Handle],
) -> None:
    """Write the missing shards, one task each."""
    with progress("segments", len(plans), "shards") as bar:
        missing = [plan for plan in plans if not stage.existing(plan.name)]
        bar.advance(len(plans) - len(missing))
        calls = ((stage, plan, labels[plan.nodes], length, *bands) for plan in missing)
        for _ in tasks.each(write_shard, calls):
            bar.advance()


def write_shard(stage: Stage, plan: ShardPlan, labels: NDArray[np.int64], length: int, *bands: Band) -> None:
    """Cut the windows of one shard's nodes and write them."""
    windows = Segments(length, bands).windows(plan.nodes)
    columns = {
        "node": pa.array(plan.nodes),
        "label": pa.array(labels),
        "ids": _flat_column(windows.ids),
        "bits": _flat_column(windows.words),
    }
    if windows.edges is not None:
        columns["edges"] = _flat_column(windows.edges)
    stage.write_table(plan.name, pa.table(columns))


def open_segments(store: GraphStore, split: int, part: str, table: NodeTable | None = None) -> ShardSource:
    """The records of one part of a split, mapped into memory.

    Args:
        store: A store with segments.
        split: Number of the dataset's split.
        part: `train`, `val`, `test`, or `rest` for the nodes in none of them.
        table: What the model reads of a node; by default the store's features.

    Raises:
        UserError: if the segments have not been written, or the part is empty.
    """
    stage = stage_name(split)
    if not store.has(stage):
        raise UserError(
            f"Expected '{store.place}' to have segments of split {split} (got none): run `cocn preprocess`"
        )
    names = [name for name in store.names(stage) if _part_of(name.removeprefix(f"{stage}/")) == part]
    if not names:
        raise UserError(f"Expected split {split} of '{store.place}' to have '{part}' nodes (got none)")
    cut = store.summary(stage, SegmentSummary)
    return ShardSource(store, names, cut.heads, cut.length, table or NodeTable((store.features(),)))


def open_sequences(store: GraphStore, split: int) -> Sequences:
    """The sequences that the segments of a split were cut from."""
    order = cast("NDArray[np.int32]", store.array(f"{stage_name(split)}/{_SEQUENCES_FILE}", "order"))
    return from_order(np.ascontiguousarray(order.T))


def _part_of(name: str) -> str:
    return name.partition("/")[0]


def _flat_column(values: NDArray[np.generic]) -> pa.Array:
    return list_column(values.reshape(values.shape[0], -1))
