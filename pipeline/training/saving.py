"""When a training saves itself: the last state at fixed intervals, the best one whenever there is a new
best."""

import time

import torch
from torch import Tensor, nn

from pipeline.training.checkpoint import TrainState, save_checkpoint
from pipeline.training.job import TrainJob
from pipeline.training.origin import Origin


class CheckpointSaver:
    """Saves on rank 0; on other ranks nothing is ever due or written."""

    def __init__(self, job: TrainJob, origin: Origin, rank: int) -> None:
        self._job = job
        self._origin = origin
        self._writes = rank == 0
        self._saved = time.monotonic()

    def is_due(self) -> bool:
        """Whether the last checkpoint is older than the configuration allows."""
        return self._writes and time.monotonic() - self._saved > self._job.config.train.checkpoint_seconds

    def save_last(
        self,
        state: TrainState,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        sequencer: dict[str, Tensor] | None,
    ) -> None:
        """Write everything that the training needs to continue."""
        if not self._writes:
            return
        weights = model.state_dict()
        save_checkpoint(self._job.directory, "last", state, weights, optimiser, sequencer, self._origin)
        self._job.publish()
        self._saved = time.monotonic()

    def save_best(self, state: TrainState, model: nn.Module) -> None:
        """Write the weights that are the best so far."""
        if self._writes:
            save_checkpoint(self._job.directory, "best", state, model.state_dict(), origin=self._origin)
