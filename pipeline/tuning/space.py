"""The space of settings that a search draws from, read from YAML and checked before anything runs.

A key of the configuration has a list of values, or a range `{from: 0.001, to: 0.1, scale: log}`; a range
between integers gives integers. Sections may be nested or dotted.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pipeline.config.loading import Config, ConfigError, check_key, load_config, read_yaml
from pipeline.config.marks import marks_of
from pipeline.models.networks import FAMILY, streams
from pipeline.runtime.errors import UserError

Value = str | int | float | bool
Point = Mapping[str, Value]
_RANGE_KEYS = {"from", "to", "scale"}
#: Settings that a search must keep fixed for its trials to be comparable, and why.
_FIXED = {
    "model.name": "a search is about one model",
    "train.epochs": "trials are compared at the same epoch; give --epochs",
    "train.metric": "it is what trials are compared by",
    "train.time_budget": "give --time-budget, for the whole search",
    "train.seed": "give --seed",
    "data.task": "trials must answer the same question",
    "data.protocol": "trials must be tested the same way",
}


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Value, ...]

    def ends(self) -> tuple[Value, ...]:
        """Values that must all be valid."""
        return self.values

    def place(self, value: Value) -> float:
        """Position of a value on an axis from 0 to 1."""
        return self.values.index(value) / max(1, len(self.values) - 1)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Positions on that axis with their names."""
        return tuple((self.place(value), str(value)) for value in self.values)


@dataclass(frozen=True)
class Range:
    """A number between two ends, both included."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False

    def ends(self) -> tuple[Value, ...]:
        """Values that must all be valid."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)

    def place(self, value: Value) -> float:
        """Position of a value on an axis from 0 to 1."""
        low, high, here = self.low, self.high, float(value)
        if self.scale == "log":
            low, high, here = math.log(low), math.log(high), math.log(here)
        return (here - low) / (high - low)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        """Positions on that axis with their names."""
        return (0.0, f"{self.low:g}"), (1.0, f"{self.high:g}")


Dimension = Choices | Range
Space = Mapping[str, Dimension]


def read_space(path: Path | None, config: Config) -> Space:
    """The space in a file, or the one that ships with the model.

    Raises:
        UserError: If a key is unknown or may not vary, or a range or value is not valid, in one line.
    """
    if path is None:
        kind = "family" if config.model.name in FAMILY else "baselines"
        if streams(config.model):
            kind = "segment"
        with_model = files("pipeline.tuning") / "assets" / f"{kind}.yaml"
        path = Path(str(with_model))
    return _parse_space(read_yaml(path), str(path), config)


def _parse_space(content: Mapping[str, Any], origin: str, config: Config) -> Space:
    """Check a space against the configuration that it varies; see :func:`read_space`."""
    space = {key: _dimension(key, value, origin) for key, value in _leaves(content)}
    if not space:
        raise UserError(f"{origin}: Expected settings to vary, such as model.dropout: [0, 0.5] (got none)")
    marks = dict(marks_of(Config))
    for key in space:
        check_key(key, origin)
        reason = _FIXED.get(key)
        if reason is None and (key not in marks or marks[key].decides != "weights"):
            reason = "only settings of the network and its training may vary, on the same store"
        if reason is not None:
            raise UserError(f"{origin}: Expected settings that may vary (got '{key}'): {reason}")
    for key, dimension in space.items():
        for value in dimension.ends():
            _check_value(key, value, origin)
    return space


def _check_value(key: str, value: Value, origin: str) -> None:
    try:
        load_config(None, {key: value})
    except ConfigError as error:
        raise UserError(f"{origin}: {str(error).partition(': ')[2]}") from error


def _leaves(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and not set(value) & _RANGE_KEYS:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _dimension(key: str, value: Any, origin: str) -> Dimension:
    if isinstance(value, list):
        values = tuple(_number(item) for item in value)
        if len(values) < 2 or len(set(map(str, values))) < len(values):
            raise UserError(f"{origin}: Expected '{key}' to have two or more different values (got {value})")
        if any(isinstance(item, list | dict | None) for item in values):
            raise UserError(f"{origin}: Expected '{key}' to be a list of plain values (got {value})")
        return Choices(values)
    if isinstance(value, Mapping):
        return _range(key, value, origin)
    raise UserError(
        f"{origin}: Expected '{key}' to be a list of values or a range {{from: …, to: …}} (got {value!r})"
    )


def _range(key: str, value: Mapping[str, Any], origin: str) -> Range:
    unknown = set(value) - _RANGE_KEYS
    if unknown or not {"from", "to"} <= set(value):
        raise UserError(
            f"{origin}: Expected the range of '{key}' to have from, to and optionally scale "
            f"(got {dict(value)})"
        )
    low, high = _number(value["from"]), _number(value["to"])
    scale = value.get("scale", "linear")
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if not numbers or not low < high:
        raise UserError(
            f"{origin}: Expected '{key}' to go from a number to a larger one (got {low} to {high})"
        )
    if scale not in ("linear", "log"):
        raise UserError(f"{origin}: Expected the scale of '{key}' to be linear or log (got '{scale}')")
    if scale == "log" and low <= 0:
        raise UserError(f"{origin}: Expected '{key}' to begin above 0 on a log scale (got {low})")
    return Range(low, high, scale, whole=isinstance(low, int) and isinstance(high, int))


def _number(value: Any) -> Any:
    """A value as it is, except 1e-3, which YAML reads as text, as a number."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value
