"""One trial, in a process of Ray Tune: a training that reports its scores and may be stopped early."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import Config
from pipeline.runtime.errors import UserError
from pipeline.storage.object_store import Remote
from pipeline.store.access import open_store
from pipeline.tracking.run_logger import RunReference
from pipeline.tracking.runs import ParentRun
from pipeline.training.launch import train, training_directory
from pipeline.training.results import EpochRecord, read_epochs
from pipeline.tuning.outcome import apply_point
from pipeline.tuning.space import Point

_POLL_SECONDS = 0.2
VARIANT = "trial"


@dataclass(frozen=True)
class TrialSettings:
    """What all trials share.

    Attributes:
        config: what the points of the space vary.
        store: the graph, with the stages the model needs.
        parent: the MLflow run of the search.
    """

    config: Config
    store: Path | Remote
    parent: RunReference

    def directory(self, point: Point) -> Path:
        """Where the training of a point is stored; the same point continues there."""
        return training_directory(apply_point(self.config, point), open_store(self.store))


def run_trial(point: dict[str, str | int | float | bool], settings: TrialSettings) -> None:
    """Train one point and report every validated epoch to Ray Tune, including those of an earlier attempt."""
    from ray import tune

    config = apply_point(settings.config, point)
    store = open_store(settings.store)
    training = _Training(lambda: train(config, store, ParentRun(settings.parent), variant=VARIANT))
    directory, reported = settings.directory(point), 0
    while True:
        ended = training.wait(_POLL_SECONDS)
        scored = [record for record in read_epochs(directory) if record.val_metric is not None]
        # The scheduler ends a trial at its last epoch, before the test.
        due = [record for record in scored if ended or record.epoch + 1 < config.train.epochs]
        for record in due[reported:]:
            tune.report(_report(record, scored))
        reported = len(due)
        if ended:
            training.raise_error()
            return


def _report(record: EpochRecord, scored: list[EpochRecord]) -> dict[str, float | int]:
    so_far = [one.val_metric for one in scored if one.epoch <= record.epoch and one.val_metric is not None]
    return {"epoch": record.epoch + 1, "val_metric": max(so_far)}


class _Training:
    """A training in a thread: reports to Ray Tune must come from the thread that it called."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._error: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._work, name="training", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001 - raised again where Ray Tune sees it
            self._error = error

    def wait(self, seconds: float) -> bool:
        """Whether it has ended, after waiting for at most the given seconds."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def raise_error(self) -> None:
        """Raise the error that ended it, if any."""
        if isinstance(self._error, UserError):
            raise RuntimeError(str(self._error)) from None
        if self._error is not None:
            raise self._error
