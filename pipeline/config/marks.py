"""What each setting decides, marked where the setting is declared; every digest of settings comes from here.

A setting decides the first of these that depends on it, and everything after it:

- `store`: the graph that ingest writes;
- `inputs`: what later stages compute from the graph, and what a training reads of it;
- `weights`: the network and how it is trained;
- `nothing`: where files are stored, what a run may use, how often it saves.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, Field, JsonValue

from pipeline.config.nested_keys import dotted_values, section_of

Decided = Literal["store", "inputs", "weights", "nothing"]
Value = TypeVar("Value")
_KEY = "decides"


@dataclass(frozen=True)
class Mark:
    """What a setting decides.

    Attributes:
        decides: the first thing that depends on the setting.
        repeats: whether results under different values are repetitions that are averaged.
        extends: whether a training started with one value continues under another.
    """

    decides: Decided
    repeats: bool = False
    extends: bool = False


def decides(what: Decided, default: Value, *, repeats: bool = False, extends: bool = False) -> Value:
    """Declare a setting with its default and its mark: `tau: float = decides("weights", 1.0)`."""
    mark: dict[str, JsonValue] = {"decides": what, "repeats": repeats, "extends": extends}
    return Field(default, json_schema_extra={_KEY: mark})


def marks_of(settings: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Mark]]:
    """The mark of every setting by its dotted key, sections included.

    Raises:
        TypeError: if a setting has none.
    """
    for name, field in settings.model_fields.items():
        if (section := section_of(field.annotation)) is not None:
            yield from marks_of(section, f"{prefix}{name}.")
            continue
        extra = field.json_schema_extra
        if not isinstance(extra, dict) or _KEY not in extra:
            raise TypeError(f"Expected '{prefix}{name}' to be declared with decides(…) (got no mark)")
        yield prefix + name, Mark(**cast(dict[str, Any], extra[_KEY]))


def decisive_settings(
    settings: BaseModel, *decided: Decided, repeats: bool = True, extends: bool = True
) -> dict[str, JsonValue]:
    """The settings that decide something, by dotted key.

    Args:
        settings: The configuration, or a section of it.
        decided: What they decide: one or more of `store`, `inputs` and `weights`.
        repeats: Whether to include settings that only tell repetitions apart, such as seed and split.
        extends: Whether to include settings that only say how long a training runs.
    """
    values = dict(dotted_values(settings.model_dump(mode="json")))
    return {
        key: values[key]
        for key, mark in marks_of(type(settings))
        if mark.decides in decided and (repeats or not mark.repeats) and (extends or not mark.extends)
    }
