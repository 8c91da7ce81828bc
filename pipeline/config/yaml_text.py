"""YAML written by people: no duplicate keys, and nothing larger or deeper than any real configuration."""

from typing import Any

import yaml

MOST_CHARACTERS = 2**20
_DEEPEST = 16
#: An alias may repeat a value that contains aliases: a few lines could expand to millions of values.
_MOST_ALIASES = 16


class TextError(ValueError):
    """Text that is not YAML we accept; `line` counts from 1, or is None if no single place is to blame."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


def parse_yaml(text: str) -> Any:
    """The value of a text; only plain values, lists and mappings are ever built.

    Raises:
        TextError: If the text is not YAML, repeats a key, or exceeds the limits above.
    """
    if len(text) > MOST_CHARACTERS:
        raise TextError(f"Expected at most {MOST_CHARACTERS:,} characters (got {len(text):,})")
    try:
        _check_events(text)
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = str(getattr(error, "problem", None) or error)
        raise TextError(f"not valid YAML ({reason})", mark.line + 1 if mark else None) from error
    except (ValueError, OverflowError) as error:
        if isinstance(error, TextError):
            raise
        raise TextError(f"not valid YAML ({error})") from error


def _check_events(text: str) -> None:
    """Check the structure before anything recursive reads it."""
    depth = aliases = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.AliasEvent):
            aliases += 1
        line = event.start_mark.line + 1
        if depth > _DEEPEST:
            raise TextError(f"Expected at most {_DEEPEST} levels of nesting (got more)", line)
        if aliases > _MOST_ALIASES:
            raise TextError(f"Expected at most {_MOST_ALIASES} aliases (got more)", line)


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
                continue
            if key.value in seen:
                raise TextError(
                    f"Expected each key once (got '{key.value}' twice): remove one of them",
                    key.start_mark.line + 1,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
