"""`cocn bench`: measurements, one sub-command per module of pipeline/benchmarks.

To add one: write `pipeline/benchmarks/<name>.py` with `run(...)` that returns a frozen dataclass, add a
function like those below, and list it in `TARGETS`.
"""

from collections.abc import Callable
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]

TARGETS: dict[str, Callable[..., None]] = {}


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Measure a part of the pipeline on this machine.")
    for name, function in TARGETS.items():
        group.command(name)(function)
    group.command("all")(run_all)
    app.add_typer(group, name="bench")


def run_all() -> None:
    """Run every benchmark with its defaults.

    Example: [bold]cocn bench all[/bold]
    """
    from rich.console import Console

    for name, function in TARGETS.items():
        Console().rule(name)
        function()
