"""How often, and on how many rows, a training evaluates, so that scoring takes little of the time."""

import logging
import math
import time
from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import nn

from pipeline.config.loading import TrainConfig
from pipeline.models.metrics import Predictions
from pipeline.training.protocol import Feed

logger = logging.getLogger(__name__)

#: Time of a forward pass relative to a training step on the same rows.
FORWARD_SHARE = 1 / 3
#: Share of the training time that validation may take before it becomes less frequent.
VALIDATION_SHARE = 0.1
#: Parts with fewer rows are validated after every epoch: validating less often would save too little.
THIN_FROM_ROWS = 50_000
#: Share of a time budget that the evaluation of one part may take; beyond that a sample is scored.
BUDGET_SHARE = 0.15
#: Minimum rows of a sample; with fewer, a class might be missing.
LEAST_ROWS = 2_000
#: Factor by which evaluation may take longer than expected.
MARGIN = 1.25


@runtime_checkable
class SampledFeed(Protocol):
    """A feed whose evaluation time grows with the rows, so that a sample takes less."""

    def num_rows(self, part: str) -> int:
        """Rows of a part of the split, over all ranks."""

    def predict_sample(self, model: nn.Module, part: str, share: float) -> Predictions:
        """Answers for a random share of a part, the same rows each time."""


class EvaluationPlan:
    """Decides when to validate and how much to score.

    When to validate depends on the numbers of rows only, so that the same training selects the same epoch on
    any machine. How much to score is measured, and only if there is a time budget.

    Args:
        feed: What is trained on.
        settings: The schedule and the time budget.
    """

    def __init__(self, feed: Feed, settings: TrainConfig) -> None:
        self._feed = feed
        self._settings = settings
        self.interval = validation_interval(feed, settings)
        self._seconds, self._steps = 0.0, 0
        self._mark = time.monotonic()

    def is_validation_due(self, epoch: int) -> bool:
        """Whether an epoch, counted from 0, ends with a validation."""
        return (epoch + 1) % self.interval == 0 or epoch + 1 == self._settings.epochs

    def start_epoch(self) -> None:
        """Start timing steps."""
        self._mark = time.monotonic()

    def record_step(self) -> None:
        """Record the time of the step that ends here."""
        now = time.monotonic()
        self._seconds, self._steps, self._mark = self._seconds + now - self._mark, self._steps + 1, now

    def reserve(self) -> float:
        """Seconds of the budget to keep for the last validation and the test."""
        if self._settings.time_budget is None:
            return 0.0
        return MARGIN * sum(self._own_share(part) * self._part_seconds(part) for part in ("val", "test"))

    def share(self, part: str) -> float:
        """Share of a part to score, the same on every rank; below 1 if the time budget is too small."""
        if self._settings.time_budget is None:
            return 1.0
        agreed = torch.tensor(self._own_share(part), dtype=torch.float64)
        if dist.is_initialized():
            dist.all_reduce(agreed, dist.ReduceOp.MIN)
        return float(agreed)

    def _own_share(self, part: str) -> float:
        budget = self._settings.time_budget
        seconds = self._part_seconds(part)
        if budget is None or not isinstance(self._feed, SampledFeed) or not seconds:
            return 1.0
        least = LEAST_ROWS / max(self._feed.num_rows(part), 1)
        return min(max(BUDGET_SHARE * budget / (MARGIN * seconds), least), 1.0)

    def _part_seconds(self, part: str) -> float:
        epoch_seconds = self._seconds / max(self._steps, 1) * self._feed.steps_per_epoch
        return evaluation_cost(self._feed, part) * epoch_seconds


def evaluation_cost(feed: Feed, part: str) -> float:
    """Time to score a part relative to an epoch of training; a whole graph is read once for either."""
    if isinstance(feed, SampledFeed):
        return FORWARD_SHARE * feed.num_rows(part) / max(feed.num_rows("train"), 1)
    return FORWARD_SHARE


def validation_interval(feed: Feed, settings: TrainConfig) -> int:
    """Epochs between two validations: as configured, or enough that validation takes a tenth of the time."""
    if settings.validate_every is not None:
        return settings.validate_every
    if not isinstance(feed, SampledFeed) or feed.num_rows("val") < THIN_FROM_ROWS:
        return 1
    interval = math.ceil(evaluation_cost(feed, "val") / VALIDATION_SHARE)
    # At least ten times per training; otherwise selecting the best epoch means little.
    interval = max(min(interval, settings.epochs // 10), 1)
    if interval > 1:
        logger.warning(
            "validating after every %d epochs: %d validation rows would take more than a tenth of the time "
            "(train.validate_every=1 validates after each)",
            interval,
            feed.num_rows("val"),
        )
    return interval


def predict_part(feed: Feed, model: nn.Module, part: str, share: float) -> Predictions:
    """Answers for a part, or for a random share of it, which is then logged."""
    if share >= 1 or not isinstance(feed, SampledFeed):
        return feed.predict(model, part)
    logger.warning(
        "scoring a random %.3g %% of the %s part: all %d rows would not fit train.time_budget",
        100 * share,
        part,
        feed.num_rows(part),
    )
    return feed.predict_sample(model, part, share)
