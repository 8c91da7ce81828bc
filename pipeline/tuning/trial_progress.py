"""A bar over the trials of a search."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.runtime.progress import Bar, progress

#: The bar of the running search: Ray Tune pickles its callbacks, and a bar cannot be pickled.
_bars: list[Bar] = []


@contextmanager
def show_trials(count: int) -> Iterator[None]:
    """Show a bar while the block runs."""
    with progress("tune", count, "trials") as bar:
        _bars.append(bar)
        try:
            yield
        finally:
            _bars.remove(bar)


def advance(best: float | None) -> None:
    """Count one more trial that has ended."""
    for bar in _bars:
        bar.advance(1, **({} if best is None else {"val": best}))


def tell_trials() -> Any:
    """What Ray Tune calls when a trial ends."""
    from ray.tune import Callback

    class TellTrials(Callback):
        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
            advance((trial.last_result or {}).get("val_metric"))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
            advance(None)

    return TellTrials()
