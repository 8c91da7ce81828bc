"""Times as people write them."""

from pipeline.runtime.errors import UserError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """The seconds in `90`, `90s`, `30m` or `2h`.

    Raises:
        UserError: for anything else.
    """
    number, factor = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1.0)
    try:
        seconds = float(number) * factor
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"Expected a time such as 90s, 30m or 2h (got '{text}')")
    return seconds


def format_duration(seconds: float) -> str:
    """Seconds as `45 s`, `20 min` or `1.5 h`."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"
