"""What tracking costs: the time of a training step with and without it, alternating."""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cocn import SegmentBatch, SegmentCoCN
from pipeline.config.loading import load_config
from pipeline.tracking.run_logger import Tracker
from pipeline.tracking.runs import Run, start_child, start_parent

_SIDE = 320
#: The reference step of `cocn bench segments`.
ROWS, HEADS, LENGTH, CHANNELS = 1000, 8, 8, 64
_SEGMENT_STEPS = 40
_METRICS = {
    "train_loss": 0.5,
    "val_loss": 0.25,
    "val_metric": 0.9,
    "rows_per_second": 1e5,
    "learning_rate": 1e-3,
}


@dataclass(frozen=True)
class TrackingCost:
    """Step times with and without tracking; five metrics are logged at a time."""

    steps: int
    log_every: int
    plain_step_ms: float
    tracked_step_ms: float
    log_call_us: float
    overhead_percent: float
    drain_seconds: float
    """Time that the last records needed after the last step."""
    segment_step_ms: float
    """A training step of the reference Segment CoCN, 1,000 records."""
    segment_call_percent: float
    """What one call of `Tracker.log` adds to such a step."""
    segment_processor_percent: float
    """What one call per step adds to the processor time of such steps, sending included; more telling than
    wall-clock time on a busy machine."""


def run(
    steps: int = 2000,
    rounds: int = 3,
    log_every: int = 20,
    uri: str | None = None,
    segment_steps: int = _SEGMENT_STEPS,
) -> TrackingCost:
    """Time steps of matrix products, alternately plain and tracked.

    Args:
        steps: Steps per round; enough that the tracker's thread sends several times in it.
        rounds: How many times both are measured; medians are reported.
        log_every: Steps between two calls of `Tracker.log`; training logs once per epoch.
        uri: Tracking URI; by default a SQLite file in a temporary directory.
        segment_steps: Steps per round of the reference Segment CoCN.
    """
    matrix = np.random.default_rng(0).standard_normal((_SIDE, _SIDE))
    plain, tracked, drain = [], [], []
    with tempfile.TemporaryDirectory() as directory:
        config = load_config(
            None, {"output": Path(directory), "tracking.uri": uri, "tracking.experiment": "bench"}
        )
        with start_parent("bench", config) as parent:
            child = start_child(parent, config, model="none", dataset="none", seed=0, split=0)
            _time_steps(matrix, steps // 10)
            for index in range(rounds):
                plain.append(_time_steps(matrix, steps))
                with Tracker(child.reference, system_metrics=True) as tracker:
                    tracked.append(_time_steps(matrix, steps, tracker, index * steps, log_every))
                    ended = time.perf_counter()
                drain.append(time.perf_counter() - ended)
            with Tracker(child.reference) as tracker:
                call = _time_calls(tracker, steps)
            step_seconds, processor = _time_segment_steps(child, segment_steps, rounds)
    plain_step, tracked_step = statistics.median(plain), statistics.median(tracked)
    return TrackingCost(
        steps=steps * rounds,
        log_every=log_every,
        plain_step_ms=1000 * plain_step,
        tracked_step_ms=1000 * tracked_step,
        log_call_us=1e6 * call,
        overhead_percent=100 * (statistics.median(t / p for t, p in zip(tracked, plain, strict=True)) - 1),
        drain_seconds=statistics.median(drain),
        segment_step_ms=1000 * step_seconds,
        segment_call_percent=100 * call / step_seconds,
        segment_processor_percent=100 * processor,
    )


def _time_steps(
    matrix: NDArray[np.float64],
    steps: int,
    tracker: Tracker | None = None,
    first: int = 0,
    log_every: int = 1,
) -> float:
    """Seconds per step: two matrix products, and the logging if there is a tracker."""
    start = time.perf_counter()
    for step in range(first, first + steps):
        (matrix @ matrix @ matrix).sum()
        if tracker is not None and step % log_every == 0:
            tracker.log(step, _METRICS)
    return (time.perf_counter() - start) / max(steps, 1)


def _time_segment_steps(child: Run, steps: int, rounds: int) -> tuple[float, float]:
    """Median seconds of a step of the reference model, and the share of processor time that logging adds."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    model = SegmentCoCN(8, CHANNELS, 2, segment_length=LENGTH, num_heads=HEADS, kernel_size=5, unit_layers=4)
    optimiser = torch.optim.AdamW(model.parameters())
    words = -(-LENGTH * LENGTH // 64)
    batch = SegmentBatch(
        x=torch.randn(ROWS, 8),
        index=torch.randint(ROWS, (ROWS, HEADS, LENGTH)),
        words=torch.randint(2**62, (ROWS, HEADS, words)),
        node=torch.arange(ROWS),
        y=torch.randint(2, (ROWS,)),
    )

    def advance(tracker: Tracker | None) -> tuple[float, list[float]]:
        start, seconds = time.process_time(), []
        for step in range(steps):
            began = time.perf_counter()
            optimiser.zero_grad()
            loss: torch.Tensor = F.cross_entropy(model(batch), torch.as_tensor(batch.y))
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if tracker is not None:
                tracker.log(step, _METRICS)
            seconds.append(time.perf_counter() - began)
        if tracker is not None:
            tracker.close()
        return time.process_time() - start, seconds

    advance(None)
    plain, tracked, clock = [], [], list[float]()
    for _ in range(rounds):
        used, seconds = advance(None)
        plain.append(used)
        clock += seconds
        tracked.append(advance(Tracker(child.reference, system_metrics=True))[0])
    added = statistics.median(t / p for t, p in zip(tracked, plain, strict=True)) - 1
    return statistics.median(clock), added


def _time_calls(tracker: Tracker, count: int) -> float:
    start = time.perf_counter()
    for step in range(count):
        tracker.log(step, _METRICS)
    return (time.perf_counter() - start) / count
