"""Batches of segments for training and evaluation: prefetched, deterministic, resumable in mid-epoch."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from cocn.loading.records import compact
from cocn.segments import SegmentBatch
from pipeline.segments.batching import BatchPlan, EpochOrder
from pipeline.segments.prefetch import Prefetcher
from pipeline.segments.records import (
    NodeTable,
    Records,
    SegmentSource,
    gather_columns,
    gather_rows,
)

_PREFETCH_BATCHES = 2


class LoaderState(BaseModel):
    """The cursor of a loader, and what it belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    position: int
    """Rows of the epoch that all ranks together have consumed."""
    num_rows: int
    batch_size: int
    seed: int


class SegmentLoader:
    """Iterates over the batches of one epoch that belong to one rank.

    The order depends on seed and epoch only: in step s all ranks together see the same rows for any number of
    ranks, and every rank takes the same number of steps. Each row is seen once per epoch. A thread prepares
    the next batches while the caller computes.

    The cursor counts the batches handed out, so a state saved while a batch is processed continues with
    the next one. A shuffled epoch that has ended stays ended until `set_epoch` starts another, so that a
    run stopped between two epochs does not repeat the first; without shuffling every iteration starts over.

    Args:
        source: Rows to iterate over.
        batch_size: Largest number of rows in a step, over all ranks.
        seed: Decides the order, together with the epoch.
        rank: Number of this worker.
        world_size: Number of workers.
        shuffle: Shuffle for training; otherwise rows come in their stored order, for evaluation.
        device: Where batches go; for CUDA through pinned memory, without waiting for the copy.
        prefetch: Batches that are prepared in advance; bounds the loader's memory.

    Raises:
        ValueError: if a rank would have no rows in some step.
    """

    def __init__(
        self,
        source: SegmentSource,
        batch_size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        shuffle: bool = True,
        device: torch.device | str = "cpu",
        prefetch: int = _PREFETCH_BATCHES,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"Expected 'rank' to be below 'world_size', {world_size} (got {rank})")
        self.plan = BatchPlan(source.num_rows, batch_size, world_size)
        self._source = source
        self._seed = seed
        self._rank = rank
        self._shuffle = shuffle
        self._device = torch.device(device)
        self._prefetch = prefetch
        self._epoch = 0
        self._step = 0

    def __len__(self) -> int:
        """Steps in a complete epoch, the same on every rank."""
        return self.plan.num_steps

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def step(self) -> int:
        """Batches of this epoch that have been handed out."""
        return self._step

    @property
    def remaining(self) -> int:
        """Batches of this epoch that are left."""
        return len(self) - self._step

    def global_rows(self, step: int) -> int:
        """Rows of a step over all ranks: what a loss summed over a rank's rows is divided by."""
        return self.plan.rows(step)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of `epoch`, or keep the cursor if it is the current one."""
        if epoch != self._epoch:
            self._epoch, self._step = epoch, 0

    def set_source(self, source: SegmentSource) -> None:
        """From the next iteration on, read the same rows from another source, such as new sequences.

        Raises:
            ValueError: if it has a different number of rows.
        """
        if source.num_rows != self._source.num_rows:
            raise ValueError(
                f"Expected 'source' to have {self._source.num_rows} rows, like the previous one "
                f"(got {source.num_rows})"
            )
        self._source = source

    def state(self) -> LoaderState:
        """The cursor after the batches handed out so far."""
        return LoaderState(
            epoch=self._epoch,
            position=self.plan.start(self._step),
            num_rows=self.plan.num_rows,
            batch_size=self.plan.batch_size,
            seed=self._seed,
        )

    def load_state(self, state: LoaderState) -> None:
        """Continue at a saved cursor, on any number of ranks.

        Raises:
            ValueError: if it comes from other rows, or a different batch size or seed.
        """
        expected = self.state().model_dump(exclude={"epoch", "position"})
        theirs = state.model_dump(exclude={"epoch", "position"})
        if expected != theirs:
            raise ValueError(f"Expected 'state' to belong to a loader with {expected} (got {theirs})")
        self._step = self.plan.step_at(state.position)
        self._epoch = state.epoch

    def __iter__(self) -> Iterator[SegmentBatch]:
        """The remaining batches of this epoch."""
        if not self._shuffle and not self.remaining:
            self._step = 0
        return self.take(self.remaining)

    def take(self, count: int) -> Iterator[SegmentBatch]:
        """At most the next `count` batches; no more are prepared, so that the source can change
        afterwards."""
        steps = range(self._step, self._step + min(count, self.remaining))
        order = EpochOrder(self.plan.num_rows, self._seed, self._epoch, self._shuffle)
        source = self._source

        def prepare(step: int) -> SegmentBatch:
            rows = order.rows(*self.plan.share(step, self._rank))
            return self._assemble(source.take(rows), source)

        with Prefetcher(prepare, steps, self._prefetch) as batches:
            for step, batch in zip(steps, batches, strict=True):
                self._step = step + 1
                yield batch.to(self._device, non_blocking=True)

    def _assemble(self, records: Records, source: SegmentSource) -> SegmentBatch:
        windows, table = records.windows, source.table
        if not table.features:
            return self._without_windows(records, table)
        index = self._empty(windows.ids.shape, torch.int64)
        distinct = compact(windows.ids, index.numpy())
        x = self._empty((distinct.size, table.num_features), torch.float32)
        table.gather(distinct, x.numpy())
        positions = None
        if table.positions is not None:
            positions = self._empty((distinct.size, table.positions.shape[1]), torch.float32)
            gather_rows(table.positions, distinct, positions.numpy())
        return SegmentBatch(
            x=x,
            index=index,
            words=self._copy(windows.words),
            node=self._copy(records.node),
            y=self._copy(records.label),
            positions=positions,
            values=self._edge_values(windows.edges, table.edge_values),
            blocks=self._blocks(records.node, table),
        )

    def _without_windows(self, records: Records, table: NodeTable) -> SegmentBatch:
        """Records whose windows are not read."""
        nothing = torch.empty((records.node.size, 0, 0), dtype=torch.int64)
        return SegmentBatch(
            x=torch.empty(0, 0),
            index=nothing,
            words=nothing,
            node=self._copy(records.node),
            y=self._copy(records.label),
            blocks=self._blocks(records.node, table),
        )

    def _blocks(self, nodes: NDArray[np.integer], table: NodeTable) -> Tensor | None:
        if not table.blocks:
            return None
        out = self._empty((nodes.size, table.num_block_columns), torch.float32)
        gather_columns(table.blocks, nodes, out.numpy())
        return out

    def _edge_values(
        self, edges: NDArray[np.integer] | None, values: NDArray[np.float32] | None
    ) -> Tensor | None:
        if edges is None or values is None:
            return None
        out = self._empty((*edges.shape, values.shape[1]), torch.float32)
        out.numpy()[...] = np.where(edges[..., None] >= 0, values[edges], 0)
        return out

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=self._device.type == "cuda")

    def _copy(self, values: NDArray[np.integer]) -> Tensor:
        out = self._empty(values.shape, torch.int64)
        out.numpy()[...] = values
        return out
