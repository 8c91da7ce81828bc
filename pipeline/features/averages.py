"""Averages over neighbours, hop by hop, by tasks over ranges of rows.

Averages are taken over standardised values. A node without neighbours gets zeros, like the average node.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

from functools import partial
from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.engine.tasks import open_tasks
from pipeline.features.blocks import (
    VALUES,
    VALUES_FILE,
    BlockParameters,
    Scale,
    row_ranges,
    stage_name,
    write_block,
    write_rows,
)
from pipeline.runtime.progress import progress
from pipeline.storage.files import column_array
from pipeline.store.arrays import CSR
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

Direction = Literal["mean", "out", "in"]
# Products (edges × columns) per hop above which Ray's tasks pay for its start.
PARALLEL_PRODUCTS = 1_000_000_000
#: The value of every float16, by its bits: numba has no half precision.
HALF_VALUES = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


def write_average(
    store: GraphStore, direction: Direction, hop: int, source: str, scale: Scale, *, replace: bool = False
) -> bool:
    """Write the block `<direction>-<hop>`: averages over the neighbours of the block one hop before.

    Args:
        store: The store.
        direction: All neighbours, those that a node points to, or those that point to it.
        hop: Number of the hop, from 1.
        source: Block that the first hop averages.
        scale: How the columns are scaled.
        replace: Drop a block that was written with other parameters.
    """
    before = source if hop == 1 else f"{direction}-{hop - 1}"
    required = stage_name(before)
    parameters = BlockParameters(block=f"{direction}-{hop}")
    fill = partial(_fill, store, direction, f"{required}/{VALUES_FILE}")
    return write_block(store, parameters, fill, scale, requires=(required,), replace=replace)


def neighbours(csr: CSR, direction: Direction) -> CSR:
    """The neighbours that a direction averages over."""
    return csr if direction == "mean" else csr.one_way(1 if direction == "out" else 2)


def _fill(store: GraphStore, direction: Direction, previous: str, stage: Stage) -> list[str]:
    store.locate(previous)  # Verified here; a task maps its own node's copy.
    csr = neighbours(store.csr() if direction != "mean" else store.undirected_csr(), direction)
    ranges = row_ranges(store.num_nodes)
    columns = column_array(store.table(previous), VALUES).shape[1]
    missing = [(name, bounds) for name, bounds in ranges if not stage.existing(name)]
    with (
        open_tasks(csr.num_edges * columns >= PARALLEL_PRODUCTS) as tasks,
        progress(stage.name, len(ranges), "ranges of rows") as bar,
    ):
        shared = tasks.put(csr)
        bar.advance(len(ranges) - len(missing))
        for _ in tasks.each(
            write_range, [(stage, name, shared, previous, bounds) for name, bounds in missing]
        ):
            bar.advance()
    return [name for name, _ in ranges]


def write_range(stage: Stage, name: str, csr: CSR, previous: str, bounds: tuple[int, int]) -> None:
    """Average the neighbours of the nodes from `bounds[0]` up to, not including, `bounds[1]`; write the
    rows."""
    start, stop = bounds
    values = column_array(stage.read_input(previous), VALUES)
    write_rows(stage, name, average_rows(csr, values, start, stop))


def average_rows(csr: CSR, values: NDArray[np.generic], start: int, stop: int) -> NDArray[np.float32]:
    """Averages of the neighbours' rows of `values` (float16), for the nodes of a range."""
    out = np.empty((stop - start, values.shape[1]), dtype=np.float32)
    _average(csr.indptr, csr.indices, values.view(np.uint16), HALF_VALUES, start, out)
    return out


@njit(cache=True, nogil=True)
def _average(indptr, indices, halves, table, start, out):
    for row in range(out.shape[0]):
        first, last = indptr[start + row], indptr[start + row + 1]
        out[row] = 0
        for edge in range(first, last):
            other = indices[edge]
            for column in range(out.shape[1]):
                out[row, column] += table[halves[other, column]]
        if last > first:
            scale = np.float32(1.0 / (last - first))
            for column in range(out.shape[1]):
                out[row, column] *= scale
