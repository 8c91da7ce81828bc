"""The time that a training has used, over all attempts, and the end of what it may use."""

import time


class Deadline:
    """A stopwatch with an optional end.

    Args:
        budget: Seconds that the training may take; None for as long as it needs.
        spent: Seconds that earlier attempts took.
    """

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self._budget = budget
        self._start = time.monotonic() - spent

    def spent(self) -> float:
        """Seconds spent training so far, those of earlier attempts included."""
        return time.monotonic() - self._start

    def is_over(self, reserve: float = 0.0) -> bool:
        """Whether the budget is used up but for the seconds to keep."""
        return self._budget is not None and self.spent() + reserve > self._budget
