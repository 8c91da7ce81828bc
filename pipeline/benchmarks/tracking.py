"""What tracking costs: the time of a training step with and without it, in turn."""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.config import load_config
from pipeline.runs import start_child, start_parent
from pipeline.tracker import Tracker

SIDE = 320
METRICS = {
    "train_loss": 0.5,
    "val_loss": 0.25,
    "val_metric": 0.9,
    "rows_per_second": 1e5,
    "learning_rate": 1e-3,
}


@dataclass(frozen=True)
class TrackingCost:
    """Step times with and without tracking; five metrics are logged every so many steps."""

    steps: int
    log_every: int
    plain_step_ms: float
    tracked_step_ms: float
    log_call_us: float
    overhead_percent: float
    drain_seconds: float
    """What the last records needed after the last step."""


def run(steps: int = 2000, rounds: int = 3, log_every: int = 20, uri: str | None = None) -> TrackingCost:
    """Time steps of matrix products, plain and tracked in turn.

    Args:
        steps: Steps a round; enough that the tracker's thread sends several times in it.
        rounds: How often both are measured; medians are reported.
        log_every: Steps between two calls of `Tracker.log`; training logs once an epoch.
        uri: Tracking URI; by default a SQLite file in a temporary directory.
    """
    matrix = np.random.default_rng(0).standard_normal((SIDE, SIDE))
    plain, tracked, drain = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        config = load_config(
            None, {"output": Path(directory), "tracking.uri": uri, "tracking.experiment": "bench"}
        )
        with start_parent("bench", config) as parent:
            child = start_child(parent, config, model="none", dataset="none", seed=0, split=0)
            time_steps(matrix, steps // 10)
            for index in range(rounds):
                plain.append(time_steps(matrix, steps))
                with Tracker(child.reference, system_metrics=True) as tracker:
                    tracked.append(time_steps(matrix, steps, tracker, index * steps, log_every))
                    ended = time.perf_counter()
                drain.append(time.perf_counter() - ended)
            with Tracker(child.reference) as tracker:
                call = _time_calls(tracker, steps)
    plain_step, tracked_step = statistics.median(plain), statistics.median(tracked)
    return TrackingCost(
        steps=steps * rounds,
        log_every=log_every,
        plain_step_ms=1000 * plain_step,
        tracked_step_ms=1000 * tracked_step,
        log_call_us=1e6 * call,
        overhead_percent=100 * (statistics.median(t / p for t, p in zip(tracked, plain, strict=True)) - 1),
        drain_seconds=statistics.median(drain),
    )


def time_steps(
    matrix: NDArray[np.float64],
    steps: int,
    tracker: Tracker | None = None,
    first: int = 0,
    log_every: int = 1,
) -> float:
    """Seconds a step: two matrix products, and the logging if there is a tracker."""
    start = time.perf_counter()
    for step in range(first, first + steps):
        (matrix @ matrix @ matrix).sum()
        if tracker is not None and step % log_every == 0:
            tracker.log(step, METRICS)
    return (time.perf_counter() - start) / max(steps, 1)


def _time_calls(tracker: Tracker, count: int) -> float:
    start = time.perf_counter()
    for step in range(count):
        tracker.log(step, METRICS)
    return (time.perf_counter() - start) / count
