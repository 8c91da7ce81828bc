"""What feeds a training loop, whatever the data: shares of a step, and predictions for a part.

All feeds have the same interface, so that one loop trains every model on every task.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from cocn import GraphBatch, SegmentBatch
from cocn.modern import BlockGraph
from pipeline.models.metrics import Predictions
from pipeline.models.opponents import OpponentGraph, RowBatch
from pipeline.segments.batching import BatchPlan
from pipeline.segments.loader import LoaderState


@dataclass(frozen=True)
class Share:
    """A rank's part of one optimiser step.

    Attributes:
        batch: what the model reads; graphs of a collection in parts of similar size.
        rows: rows of the step over all ranks, which the summed loss is divided by.
        label: class of each graph of the batch, or of each pair; None if the batch or the feed has them.
        pairs: [2, P] pairs of nodes of the batch whose links are to be predicted.
    """

    batch: SegmentBatch | GraphBatch | BlockGraph | tuple[GraphBatch, ...] | OpponentGraph | RowBatch
    rows: int
    label: Tensor | None = None
    pairs: Tensor | None = None


class Feed(Protocol):
    """Where training data comes from."""

    @property
    def steps_per_epoch(self) -> int: ...

    @property
    def epoch_ended(self) -> bool:
        """Whether the current epoch has no more shares."""

    def start_epoch(self, epoch: int) -> None:
        """Prepare for an epoch, or keep the cursor if that epoch is already running."""

    def shares(self) -> Iterator[Share]:
        """The rest of the current epoch, for this rank."""

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        """This rank's part of a step's cross-entropy, summed over its rows; the parts of all ranks add up to
        it."""

    def predict(self, model: nn.Module, part: str) -> Predictions:
        """Predictions for a part of the split, in evaluation mode."""

    def cursor(self) -> LoaderState | None:
        """Position in the current epoch."""

    def sequencer(self) -> dict[str, Tensor] | None:
        """Weights of the position regression that produced the sequences of the current epoch."""

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        """Go to a saved position."""


class BatchedFeed:
    """The cursor of a feed whose epochs are mini-batches in an order that seed and epoch decide.

    Args:
        plan: Batches of an epoch.
        seed: Decides the order, together with the epoch.
    """

    def __init__(self, plan: BatchPlan, seed: int) -> None:
        self._plan = plan
        self._seed = seed
        self._epoch = self._step = 0

    @property
    def steps_per_epoch(self) -> int:
        return self._plan.num_steps

    @property
    def epoch_ended(self) -> bool:
        return self._step == self._plan.num_steps

    def start_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._step = epoch, 0

    def cursor(self) -> LoaderState | None:
        plan = self._plan
        return LoaderState(
            epoch=self._epoch,
            position=plan.start(self._step),
            num_rows=plan.num_rows,
            batch_size=plan.batch_size,
            seed=self._seed,
        )

    def sequencer(self) -> dict[str, Tensor] | None:
        return None

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        if cursor is not None:
            self._epoch, self._step = cursor.epoch, self._plan.step_at(cursor.position)


class OneStepFeed:
    """The cursor of a feed whose epochs are one step, on the whole graph.

    Args:
        num_rows: Rows of the step.
        world_size: Number of ranks, which divide the heads and all see every row.
    """

    def __init__(self, num_rows: int, world_size: int) -> None:
        self._num_rows = num_rows
        self._world_size = world_size
        self._epoch = 0
        self._pending = True

    @property
    def steps_per_epoch(self) -> int:
        return 1

    @property
    def epoch_ended(self) -> bool:
        return not self._pending

    def start_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._pending = epoch, True

    def cursor(self) -> LoaderState | None:
        rows = self._num_rows
        position = 0 if self._pending else rows
        return LoaderState(epoch=self._epoch, position=position, num_rows=rows, batch_size=rows, seed=0)

    def sequencer(self) -> dict[str, Tensor] | None:
        return None

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        if cursor is not None:
            self._epoch, self._pending = cursor.epoch, cursor.position == 0
