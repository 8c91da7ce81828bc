"""Features propagated before training: Ã^t X by tasks over blocks of rows, into the store.

Implements: the order `before` of eq:approximate-ex-pos-implementation, MLP(Ã^t X).

Deviation: the paper propagates after the MLP; this order needs no graph in memory while training.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs

import itertools
from typing import cast

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline.engine.tasks import Tasks, open_tasks
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import progress
from pipeline.storage.files import column_array, list_column
from pipeline.store.arrays import CSR
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

BLOCK_ROWS = 65_536
_FEATURES_FILE = "nodes/features.arrow"
_RESULT_FILE = "features.arrow"
_COLUMN = "features"
# Products (edges × features) per step above which Ray's tasks pay for its start.
_PARALLEL_PRODUCTS = 1_000_000_000


class _PropagationParameters(BaseModel):
    """Everything that determines the bytes of one step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    self_loops: bool


def stage_name(step: int) -> str:
    """Name of the stage, and of its directory, that holds Ã^step X."""
    return f"propagated-{step}"


def propagate_features(
    store: GraphStore,
    steps: int,
    *,
    self_loops: bool = True,
    replace: bool = False,
    parallel: bool | None = None,
) -> bool:
    """Write ÃX, Ã²X, … Ã^steps X, with Ã = D^-½ A D^-½; existing steps are kept.

    A step is a separate stage that reads the one before, so more steps can be added later. A killed run
    continues with the missing blocks.

    Args:
        store: A store with features.
        steps: Largest power (t in the paper).
        self_loops: Give every node an edge to itself; self-loops of the graph itself never count.
        replace: Drop steps that were written with other parameters.
        parallel: Use Ray; by default if the graph is large enough to pay for its start.

    Returns:
        Whether there was anything to do.

    Raises:
        UserError: if the store has no features.
    """
    if not store.manifest.num_features:
        raise UserError(f"Expected '{store.place}' to have node features to propagate (got none)")
    if parallel is None:
        parallel = store.manifest.num_edges * store.manifest.num_features >= _PARALLEL_PRODUCTS
    worked = [_propagate_once(store, step, self_loops, replace, parallel) for step in range(1, steps + 1)]
    return any(worked)


def open_propagated(store: GraphStore, step: int) -> NDArray[np.float32]:
    """Ã^step X, [n, D], mapped into memory; step 0 is X itself.

    Raises:
        UserError: if it has not been computed.
    """
    if step == 0:
        return store.features()
    name = stage_name(step)
    if not store.has(name):
        raise UserError(f"Expected '{store.place}' to have stage '{name}' (got none): run `cocn preprocess`")
    return cast("NDArray[np.float32]", store.array(f"{name}/{_RESULT_FILE}", _COLUMN))


def _propagate_once(store: GraphStore, step: int, self_loops: bool, replace: bool, parallel: bool) -> bool:
    parameters = _PropagationParameters(step=step, self_loops=self_loops)
    requires = (stage_name(step - 1),) if step > 1 else ()
    with store.begin(stage_name(step), parameters, requires=requires, replace=replace) as stage:
        if stage.done:
            return False
        previous = _FEATURES_FILE if step == 1 else f"{stage_name(step - 1)}/{_RESULT_FILE}"
        store.locate(previous)  # Verified here; a task maps its own node's copy.
        csr = store.undirected_csr()
        with open_tasks(parallel) as tasks:
            names = _write_blocks(tasks, stage, csr, previous, self_loops)
        _join_blocks(stage, names, store.num_nodes, store.manifest.num_features)
        stage.commit()
    return True


def _write_blocks(tasks: Tasks, stage: Stage, csr: CSR, previous: str, self_loops: bool) -> list[str]:
    bounds = [*range(0, csr.num_nodes, BLOCK_ROWS), csr.num_nodes]
    blocks = list(itertools.pairwise(bounds))
    names = [f"block-{number:05d}.arrow" for number in range(len(blocks))]
    shared, scales = tasks.put(csr), tasks.put(_inverse_roots(csr, self_loops))
    with progress(f"propagation {stage.name}", len(names), "blocks") as bar:
        calls = [
            (stage, name, shared, scales, previous, block, self_loops)
            for name, block in zip(names, blocks, strict=True)
            if not stage.existing(name)
        ]
        bar.advance(len(names) - len(calls))
        for _ in tasks.each(write_block, calls):
            bar.advance()
    return names


def write_block(
    stage: Stage,
    name: str,
    csr: CSR,
    scales: NDArray[np.float64],
    previous: str,
    block: tuple[int, int],
    self_loops: bool,
) -> None:
    """Compute and write the rows from `block[0]` up to, not including, `block[1]`."""
    start, stop = block
    x = cast("NDArray[np.float32]", column_array(stage.read_input(previous), _COLUMN))
    out = np.empty((stop - start, x.shape[1]), dtype=np.float32)
    _multiply(csr.indptr, csr.indices, scales, x, start, self_loops, out)
    stage.write_scratch(name, pa.table({_COLUMN: list_column(out)}))


def _join_blocks(stage: Stage, names: list[str], num_nodes: int, num_features: int) -> None:
    # A mapped file instead of memory: readers need one chunk, and the features may not fit into memory.
    whole = np.memmap(
        stage.workspace / "joined.bin", dtype=np.float32, mode="w+", shape=(num_nodes, num_features)
    )
    start = 0
    for name in names:
        rows = column_array(stage.read(name), _COLUMN)
        whole[start : start + len(rows)] = rows
        start += len(rows)
    stage.write_table(_RESULT_FILE, pa.table({_COLUMN: list_column(whole)}))


def _inverse_roots(csr: CSR, self_loops: bool) -> NDArray[np.float64]:
    """D^-½ as a vector; 0 for nodes without edges."""
    degrees = np.empty(csr.num_nodes, dtype=np.float64)
    _count_neighbours(csr.indptr, csr.indices, self_loops, degrees)
    return np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0.0)


@njit(cache=True, nogil=True)
def _count_neighbours(indptr, indices, self_loops, degrees):
    for node in range(degrees.size):
        count = 1 if self_loops else 0
        for edge in range(indptr[node], indptr[node + 1]):
            count += indices[edge] != node
        degrees[node] = count


@njit(cache=True, nogil=True)
def _multiply(indptr, indices, scales, x, start, self_loops, out):
    total = np.empty(x.shape[1], dtype=np.float64)
    for row in range(out.shape[0]):
        node = start + row
        total[:] = 0
        if self_loops:
            for column in range(total.size):
                total[column] = scales[node] * x[node, column]
        for edge in range(indptr[node], indptr[node + 1]):
            other = indices[edge]
            if other != node:
                for column in range(total.size):
                    total[column] += scales[other] * x[other, column]
        for column in range(total.size):
            out[row, column] = scales[node] * total[column]
