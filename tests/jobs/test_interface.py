"""The command line is an interface: its commands and options change only on purpose."""

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from typer.main import get_command

import jobs
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


def test_every_command_is_in_the_readme_with_its_module_and_an_example() -> None:
    readme = (Path(jobs.__file__).parent / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.splitlines() if line.startswith("| `cocn ")]
    listed = {re.findall(r"`([^`]+)`", row)[0]: row for row in rows}
    commands = [line.partition(":")[0] for line in options(get_command(build_app()), "cocn")]
    assert sorted(listed) == sorted(commands)
    for command, row in listed.items():
        assert row.count(f"`{command}") == 2, f"no example of {command}"
        for module in re.findall(r"`(pipeline[\w.]*)`", row):
            assert find_spec(module) is not None, module
