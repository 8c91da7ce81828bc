"""What a configuration consists of: where each value came from, and a JSON schema for editors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from pipeline.config.loading import FLAGS, PRESET, load_config, read_yaml
from pipeline.config.nested_keys import dotted_keys, dotted_values
from pipeline.config.settings import Config
from pipeline.runtime.passwords import hide_passwords

DEFAULT = "default"
_SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Keys that fields carry for internal use.
_OWN_NOTES = ("decides",)


@dataclass(frozen=True)
class Setting:
    """One value of a resolved configuration."""

    key: str
    """Dotted key."""
    value: Any
    origin: str
    """`default`, `preset`, `command line`, or the file it was read from."""


def explain_config(
    paths: Sequence[Path] = (),
    overrides: Mapping[str, object] | None = None,
    *,
    preset: Mapping[str, object] | None = None,
) -> tuple[Setting, ...]:
    """Every value of the configuration that :func:`load_config` returns, and where it came from.

    Raises:
        ConfigError: As `load_config` does.
    """
    config = load_config(paths, overrides, preset=preset)
    origins = dict.fromkeys(preset or {}, PRESET)
    for path in paths:
        origins |= dict.fromkeys(dotted_keys(read_yaml(path)), str(path))
    origins |= {key: FLAGS for key, value in (overrides or {}).items() if value is not None}
    return tuple(
        Setting(key, hide_passwords(value) if isinstance(value, str) else value, origins.get(key, DEFAULT))
        for key, value in dotted_values(config.model_dump(mode="json"))
    )


def config_schema() -> dict[str, JsonValue]:
    """The JSON schema of a configuration file: types, bounds, defaults and a sentence for every key."""
    schema = _without_notes(Config.model_json_schema())
    return {"$schema": _SCHEMA_DIALECT, **schema, "title": "Configuration of cocn"}


def _without_notes(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_notes(item) for name, item in value.items() if name not in _OWN_NOTES}
    return [_without_notes(item) for item in value] if isinstance(value, list) else value
