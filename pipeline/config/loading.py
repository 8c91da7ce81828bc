"""Reading a configuration: a YAML file, then flags, with one-line errors that name file, key and remedy."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.config.nested_keys import dotted_keys, merge, section_of
from pipeline.config.settings import (
    Config,
    DataConfig,
    ModelConfig,
    PositionConfig,
    ResourceConfig,
    SegmentConfig,
    StorageConfig,
    TrackingConfig,
    TrainConfig,
)
from pipeline.config.yaml_text import MOST_CHARACTERS, TextError, parse_yaml
from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords

__all__ = [
    "Config",
    "ConfigError",
    "DataConfig",
    "ModelConfig",
    "PositionConfig",
    "ResourceConfig",
    "SegmentConfig",
    "StorageConfig",
    "TrackingConfig",
    "TrainConfig",
    "load_config",
    "parse_assignments",
    "to_yaml",
    "valid_keys",
]

FLAGS = "command line"
PRESET = "preset"
_LONGEST_SHOWN = 60


class ConfigError(UserError):
    """A configuration that cannot be used."""


def load_config(
    paths: Path | Sequence[Path] | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    preset: Mapping[str, object] | None = None,
) -> Config:
    """Read configuration files and apply overrides.

    Args:
        paths: YAML files, such as one for the model and one for the cluster; later ones override earlier
            ones, and without any the defaults apply.
        overrides: Values by dotted key, such as `{"train.epochs": 3}`; None stands for a flag not given.
        preset: Values by dotted key that replace defaults.

    Raises:
        ConfigError: On a missing or unreadable file, an unknown key or a value of the wrong type.
    """
    files = [paths] if isinstance(paths, Path) else list(paths or ())
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for file in files:
        content = read_yaml(file)
        for key in dotted_keys(content):
            check_key(key, str(file))
            origins[key] = str(file)
        merge(values, content)
    origin = str(files[-1]) if files else FLAGS
    written = set(origins)
    for key, value in (preset or {}).items():
        check_key(key, PRESET)
        if key not in written:
            _assign(values, key, value, origin)
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    for key, value in given.items():
        check_key(key, FLAGS)
        _assign(values, key, value, origin)
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        origins |= dict.fromkeys(given, FLAGS)
        raise ConfigError(first_problem(error, origins, origin)) from error


def parse_assignments(assignments: Iterable[str]) -> dict[str, object]:
    """Turn `train.epochs=3` strings into overrides; values are read as YAML, so `[3, 5]` is a list."""
    overrides: dict[str, object] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator or not key:
            raise ConfigError(
                f"Expected '--set' to be KEY=VALUE, such as train.epochs=3 (got '{assignment}')"
            )
        try:
            value = parse_yaml(text)
        except TextError as error:
            shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
            raise ConfigError(f"Expected the value of '{key}' to be YAML (got '{shown}': {error})") from error
        if value is None:
            # None would count as a flag that was not given.
            raise ConfigError(f"Expected '--set {key}=' to be followed by a value (got '{text}')")
        overrides[key] = value
    return overrides


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; an empty file is an empty mapping."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: Expected a file (got {_kind_of_place(path)})")
        with path.open(encoding="utf-8") as file:
            content = parse_yaml(file.read(MOST_CHARACTERS + 1))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: Expected UTF-8 text (byte {error.start} is not)") from error
    except TextError as error:
        place = f"{path}, line {error.line}" if error.line else str(path)
        raise ConfigError(f"{place}: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: Expected keys and values at the top (got {_kind(content)})")
    return content


def _kind_of_place(path: Path) -> str:
    if path.is_dir():
        return "a directory"
    return "a pipe" if path.is_fifo() else "a device"


def to_yaml(config: Config) -> str:
    """The resolved configuration as YAML that `load_config` reads back."""
    return str(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def valid_keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """Every dotted key of the configuration, sections included."""
    for name, field in model.model_fields.items():
        yield prefix + name
        if (section := section_of(field.annotation)) is not None:
            yield from valid_keys(section, f"{prefix}{name}.")


def check_key(key: str, origin: str) -> None:
    """Raise a `ConfigError` that suggests the nearest valid key, unless `key` is valid."""
    keys = list(valid_keys())
    if key not in keys:
        raise ConfigError(f"{origin}: unknown key '{key}'; did you mean '{_nearest_key(key, keys)}'?")


def _nearest_key(key: str, keys: Iterable[str]) -> str:
    """The valid key closest to `key`, by the whole path and by its last word."""

    def likeness(candidate: str) -> float:
        whole = difflib.SequenceMatcher(None, key, candidate).ratio()
        last = difflib.SequenceMatcher(None, key.split(".")[-1], candidate.split(".")[-1]).ratio()
        return 2 * last + whole

    return max(keys, key=likeness)


def _assign(values: dict[str, Any], key: str, value: object, origin: str) -> None:
    *sections, name = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{origin}: Expected '{section}' to hold keys and values (got {_kind(inner)})")
        values = inner
    values[name] = value


def first_problem(error: ValidationError, origins: Mapping[str, str], origin: str) -> str:
    """One line on the first wrong value: where it was written, what was expected, what was found."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if not key or message.startswith("Expected "):
        return f"{origin}: {message}"
    named = [name for name in origins if key == name or key.startswith(f"{name}.")]
    place = origins[max(named, key=len)] if named else origin
    more = f"; {error.error_count() - 1} more like it" if error.error_count() > 1 else ""
    expected = message.removeprefix("Input should be ")
    expectation = f"Expected '{key}' to be {expected}" if expected != message else f"'{key}': {message}"
    return f"{place}: {expectation} (got {hide_passwords(repr(problem['input']))}){more}"


def _kind(value: object) -> str:
    names = {list: "a list", dict: "keys and values", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)
