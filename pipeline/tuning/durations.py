"""Durations as people write them."""

import re

from pipeline.runtime.errors import UserError

_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}


def parse_duration(flag: str, text: str) -> float:
    """The seconds in `90`, `90s`, `30m` or `1h30m`.

    Raises:
        UserError: If it is none of these, or empty.
    """
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    elif re.fullmatch(r"(\d+(\.\d+)?[dhms])+", text):
        seconds = sum(
            float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)([dhms])", text)
        )
    else:
        seconds = 0.0
    if seconds <= 0:
        raise UserError(f"Expected '{flag}' to be a duration such as 90s, 30m or 1h30m (got '{text}')")
    return seconds
