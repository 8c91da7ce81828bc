"""The command line is an interface: its commands and options change only on purpose."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from jobs.cli import build_app

FROZEN = Path(__file__).with_name("interface.txt")


def options(command: Any, name: str) -> Iterator[str]:
    """A line for each command: its name, its arguments and its options."""
    inner = getattr(command, "commands", None)
    if inner is not None:
        for word in sorted(inner):
            yield from options(inner[word], f"{name} {word}")
        return
    words = sorted("/".join(parameter.opts + parameter.secondary_opts) for parameter in command.params)
    yield " ".join([f"{name}:", *words])


def test_commands_and_options_are_those_on_file() -> None:
    current = "".join(f"{line}\n" for line in options(get_command(build_app()), "cocn"))
    if os.environ.get("UPDATE_INTERFACE") == "1":
        FROZEN.write_text(current, encoding="utf-8")
    assert current == FROZEN.read_text(encoding="utf-8"), (
        "the command line changed; if that is meant: UPDATE_INTERFACE=1 make test PYTEST_ARGS='-k on_file'"
    )
