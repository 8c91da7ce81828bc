"""Results on standard output: readable for people, or one JSON object as the last line for programs."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from rich.console import RenderableType


def emit(result: object, as_json: bool, view: "RenderableType | None" = None) -> None:
    """Print the result of a command.

    Args:
        result: A frozen dataclass or a pydantic model.
        as_json: Print one line of JSON instead of something to read.
        view: What people see (a rich table, a line of text); by default the fields, one per line.
    """
    if as_json:
        print(to_json(result), flush=True)  # noqa: T201
        return
    from rich.console import Console

    Console().print(view if view is not None else fields_table(result))


def say(line: str) -> None:
    """Print a message for people on standard error while the command runs."""
    from rich.console import Console

    Console(stderr=True, highlight=False).print(line)


def to_json(result: object) -> str:
    """One line of strict JSON; numbers that JSON cannot express become null."""
    return json.dumps(_plain(result), ensure_ascii=False, allow_nan=False)


def fields_table(result: object) -> "RenderableType":
    """The fields of a result as a two-column table."""
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in _plain(result).items():
        table.add_row(name.replace("_", " "), _readable(value))
    return table


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"))
    if hasattr(value, "uri"):  # a place in an object store
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return _plain(value.item())
    return value
