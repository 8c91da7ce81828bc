"""Nested keys and values, as in YAML, and dotted keys, as in flags and MLflow."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel


def dotted_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested keys, by dotted key."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from dotted_values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def dotted_keys(values: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Every dotted key of nested keys, sections included."""
    for name, value in values.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from dotted_keys(value, f"{prefix}{name}.")


def merge(values: dict[str, Any], content: Mapping[str, Any]) -> None:
    """Merge nested keys into others, in place; the new values win."""
    for name, value in content.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            merge(values[name], value)
        else:
            values[name] = value


def section_of(annotation: object) -> type[BaseModel] | None:
    """The section that a field of a configuration holds, if any."""
    choices = get_args(annotation) or (annotation,)
    return next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), None)
