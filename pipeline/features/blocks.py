"""Input blocks in the store: what a model reads of a node, one file of standardised columns per block.

A block is a separate stage, so that blocks can be added later, and a killed run continues with the missing
rows. Values are standardised once, with statistics over all nodes that are stored with them, and kept as
float16: after standardisation three digits are all that a model can use.

| block | columns |
|---|---|
| `own` | the node's own features |
| `projected` | principal components of wide features, used for averages |
| `mean-K` | averages over the neighbours, K times |
| `out-K`, `in-K` | the same over the nodes that a node points to, or that point to it |
| `structure` | degrees, distance profile, core number, PageRank, clustering, community size |
| `labels-S` | classes of the neighbours that are training nodes of split S, never the node's own |

Legend: n nodes, D columns of a block.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline.runtime.errors import UserError
from pipeline.storage.files import column_array, list_column
from pipeline.store.arrays import Floats
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

BLOCK_ROWS = 65_536
VALUES_FILE = "values.arrow"
STATISTICS_FILE = "statistics.arrow"
VALUES = "values"

Halves = NDArray[np.float16]
#: How a block is scaled: each column on its own, all columns alike, or not at all.
Scale = Literal["columns", "whole", "none"]


class BlockParameters(BaseModel):
    """Everything that determines the bytes of a block."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    block: str
    version: int = 1
    columns: int = 0
    """Number of columns, if the block leaves a choice."""


class BlockSummary(BaseModel):
    """What the manifest says about a block."""

    model_config = ConfigDict(frozen=True)

    columns: int
    scale: Scale


@dataclass(frozen=True)
class Statistics:
    """The statistics of a block's standardisation: (raw − mean) / deviation, column by column."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def apply(self, raw: NDArray[np.floating]) -> Floats:
        return ((raw - self.mean) / self.deviation).astype(np.float32)


def stage_name(block: str) -> str:
    """Name of the stage, and of its directory in the store, that holds a block."""
    return f"block-{block}"


def open_block(store: GraphStore, block: str) -> Halves:
    """The standardised values of a block, [n, D], mapped into memory.

    Raises:
        UserError: if it has not been computed.
    """
    name = stage_name(block)
    if not store.has(name):
        raise UserError(f"Expected '{store.place}' to have stage '{name}' (got none): run `cocn preprocess`")
    return cast(Halves, store.array(f"{name}/{VALUES_FILE}", VALUES))


def read_statistics(store: GraphStore, block: str) -> Statistics:
    """The statistics of a block's standardisation."""
    name = f"{stage_name(block)}/{STATISTICS_FILE}"
    mean, deviation = (
        cast("NDArray[np.float64]", store.array(name, column)) for column in ("mean", "deviation")
    )
    return Statistics(mean, deviation)


def write_block(
    store: GraphStore,
    parameters: BlockParameters,
    fill: Callable[[Stage], list[str]],
    scale: Scale,
    *,
    requires: tuple[str, ...] = (),
    replace: bool = False,
) -> bool:
    """Write a block as a stage: raw rows in scratch files, their statistics, the standardised values.

    Args:
        store: The store.
        parameters: What determines the block.
        fill: Writes the raw rows, and returns the names of the scratch files in the order of the rows.
        scale: How columns are scaled.
        requires: Stages that `fill` reads.
        replace: Drop a block that was written with other parameters.

    Returns:
        Whether there was anything to do.
    """
    with store.begin(stage_name(parameters.block), parameters, requires=requires, replace=replace) as stage:
        if stage.done:
            return False
        names = fill(stage)
        statistics = _measure(stage, names, scale)
        _write_values(stage, names, store.num_nodes, statistics)
        stage.write_table(
            STATISTICS_FILE, pa.table({"mean": statistics.mean, "deviation": statistics.deviation})
        )
        stage.commit(BlockSummary(columns=len(statistics.mean), scale=scale))
    return True


def row_ranges(num_nodes: int) -> list[tuple[str, tuple[int, int]]]:
    """Name and bounds of every scratch file of a block."""
    bounds = [*range(0, num_nodes, BLOCK_ROWS), num_nodes]
    return [(f"rows-{number:05d}.arrow", pair) for number, pair in enumerate(itertools.pairwise(bounds))]


def write_rows(stage: Stage, name: str, rows: Floats) -> None:
    """Write raw rows of a block as a scratch file."""
    stage.write_scratch(name, pa.table({VALUES: list_column(np.ascontiguousarray(rows))}))


def _read_rows(stage: Stage, name: str) -> Floats:
    return cast(Floats, column_array(stage.read(name), VALUES))


def _measure(stage: Stage, names: list[str], scale: Scale) -> Statistics:
    """Mean and deviation of every column over all nodes; constant columns are left as they are."""
    count, total, squares = 0, np.zeros(0), np.zeros(0)
    for name in names:
        rows = _read_rows(stage, name).astype(np.float64)
        count += len(rows)
        total, squares = (
            (total + rows.sum(0), squares + (rows**2).sum(0))
            if total.size
            else (rows.sum(0), (rows**2).sum(0))
        )
    if scale == "none":
        return Statistics(np.zeros_like(total), np.ones_like(total))
    mean = total / max(count, 1)
    variance = np.maximum(squares / max(count, 1) - mean**2, 0.0)
    if scale == "whole":
        variance = np.full_like(variance, variance.mean() if variance.size else 1.0)
    deviation = np.sqrt(variance)
    return Statistics(mean, np.where(deviation > 1e-6 * (1 + np.abs(mean)), deviation, 1.0))


def _write_values(stage: Stage, names: list[str], num_nodes: int, statistics: Statistics) -> None:
    # A mapped file instead of memory: readers need one chunk, and a block may not fit into memory.
    shape = (num_nodes, len(statistics.mean))
    whole = np.memmap(stage.workspace / "joined.bin", dtype=np.float16, mode="w+", shape=shape)
    largest = float(np.finfo(np.float16).max)
    start = 0
    for name in names:
        rows = statistics.apply(_read_rows(stage, name))
        whole[start : start + len(rows)] = np.clip(rows, -largest, largest)
        start += len(rows)
    stage.write_table(VALUES_FILE, pa.table({VALUES: list_column(whole)}))
