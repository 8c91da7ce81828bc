"""The time that a training has used, over all attempts, and its limit."""

import time


class Deadline:
    """A stopwatch with an optional limit.

    Args:
        budget: Seconds that the training may take; None for no limit.
        spent: Seconds that earlier attempts took.
    """

    def __init__(self, budget: float | None, spent: float = 0.0) -> None:
        self._budget = budget
        self._start = time.monotonic() - spent

    def spent(self) -> float:
        """Seconds spent training so far, including earlier attempts."""
        return time.monotonic() - self._start

    def is_over(self, reserve: float = 0.0) -> bool:
        """Whether the budget is used up, apart from the seconds to keep in reserve."""
        return self._budget is not None and self.spent() + reserve > self._budget
