"""`cocn track`: records that are waiting for the tracker."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.output import emit


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Manage records that the tracker has not received yet.")
    group.command("sync")(sync)
    group.callback()(_group)
    app.add_typer(group, name="track")


def sync(
    output: Annotated[Path, typer.Option(help="Directory that runs were written to.")] = Path("runs"),
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow tracking URI instead of the one each run was started with.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Send what was logged while the tracker was unreachable, and end runs whose process is gone.

    Example: [bold]cocn track sync[/bold]
    """
    from pipeline.tracking.runs import JOURNALS
    from pipeline.tracking.runs import sync as send

    result = send(output / JOURNALS, tracking_uri)
    emit(result, as_json)
    if result.waiting:
        raise typer.Exit(1)


def _group() -> None:
    """Manage records that the tracker has not received yet."""
