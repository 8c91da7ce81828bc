"""What rank 0 writes while training: regular status, a line per epoch, metrics, and the result at the end."""

import time

from pipeline.models.metrics import Evaluation
from pipeline.tracking.run_logger import Tracker
from pipeline.training.checkpoint import TrainState
from pipeline.training.job import TrainJob
from pipeline.training.results import EpochRecord, Now, TrainResult, append_epoch, write_now, write_result

#: Seconds between two status updates in mid-epoch.
_BEAT_SECONDS = 1.0


class Recorder:
    """Records a training in its directory and in MLflow; on ranks other than 0 it writes nothing."""

    def __init__(self, job: TrainJob, state: TrainState, rank: int) -> None:
        self._job = job
        self._writes = rank == 0
        self._tracker = Tracker(job.tracking, system_metrics=True) if job.tracking and rank == 0 else None
        self._beat, self._beat_state = time.monotonic(), state
        self._silent = True
        self._epoch_start, self._rows_before = time.monotonic(), state.rows

    def start_epoch(self, state: TrainState) -> None:
        """Start measuring the throughput of an epoch, or of the rest of it."""
        self._epoch_start, self._rows_before = time.monotonic(), state.rows

    def rows_per_second(self, state: TrainState) -> float:
        """Throughput since the epoch, or this attempt at it, began."""
        return (state.rows - self._rows_before) / max(time.monotonic() - self._epoch_start, 1e-9)

    def record_step(self, state: TrainState, steps_per_epoch: int) -> None:
        """Write, every few seconds, where the training stands."""
        now, before = time.monotonic(), self._beat_state
        passed = now - self._beat
        if not self._writes or (passed < _BEAT_SECONDS and not self._silent):
            return
        rows = state.rows - before.rows if state.epoch == before.epoch else state.rows
        standing = Now(
            epoch=state.epoch,
            step=state.step % steps_per_epoch or steps_per_epoch,
            steps=steps_per_epoch,
            loss=state.loss_sum / state.rows,
            rows_per_second=rows / passed,
            steps_per_second=(state.step - before.step) / passed,
        )
        write_now(self._job.directory, standing)
        self._silent = False  # the first step is reported immediately
        self._beat, self._beat_state = now, state

    def record_epoch(
        self,
        state: TrainState,
        validation: Evaluation | None,
        metric: str,
        *,
        rows_per_second: float,
        learning_rate: float,
        seconds: float,
    ) -> None:
        """Write the epoch that `state` is in.

        Args:
            state: Where the training stands, before the next epoch begins.
            validation: Scores on the validation part; None for an epoch that was not validated.
            metric: The score that selects the best epoch.
            rows_per_second: Throughput of the epoch, not counting validation.
            learning_rate: Learning rate of its last step.
            seconds: Time spent training so far.
        """
        if not self._writes:
            return
        record = EpochRecord(
            epoch=state.epoch,
            step=state.step,
            train_loss=state.loss_sum / max(state.rows, 1),
            val_loss=None if validation is None else validation.loss,
            val_metric=None if validation is None else validation.metrics[metric],
            rows_per_second=rows_per_second,
            learning_rate=learning_rate,
            seconds=seconds,
        )
        append_epoch(self._job.directory, record)
        self._log(record.epoch, record.metrics())

    def record_result(self, result: TrainResult) -> None:
        """Write the result of the training."""
        if self._writes:
            self._log(result.epochs, result.metrics())
            write_result(self._job.directory, result)
            self._job.publish()

    def close(self) -> None:
        """Send what MLflow has not received yet."""
        if self._tracker is not None:
            self._tracker.close()

    def _log(self, step: int, values: dict[str, float]) -> None:
        if self._tracker is not None:
            self._tracker.log(step, values)
