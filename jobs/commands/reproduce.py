"""`cocn reproduce`: results of the paper, next to ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.isomorphism import Outcome

reproduce = typer.Typer(help="Repeat results of the paper.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(reproduce, name="reproduce")


@reproduce.callback()
def _options() -> None:
    """Repeat results of the paper."""


@reproduce.command("isomorphism")
def isomorphism(
    data_root: Annotated[Path, typer.Option(help="Directory of the data sets; has isomorphism/.")],
    only: Annotated[
        str | None, typer.Option(help="Only these, separated by commas: graph8c, sr25, exp.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the networks and of the numberings.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Tell non-isomorphic graphs apart with an untrained network, and copies of one graph not.

    Example: [bold]cocn reproduce isomorphism --data-root datasets --only sr25[/bold]
    """
    from pipeline.errors import UserError
    from pipeline.isomorphism import NAMES, read_collections, run_test

    chosen = [name.strip() for name in only.split(",")] if only else list(NAMES)
    for name in chosen:
        if name not in NAMES:
            raise UserError(f"Expected '--only' to name some of {', '.join(NAMES)} (got '{name}')")
    outcomes = {each.name: run_test(each, seed) for each in read_collections(data_root, chosen)}
    emit(outcomes, as_json, None if as_json else _table(outcomes))


def _table(outcomes: "dict[str, Outcome]") -> "Table":
    from rich.table import Table

    table = Table("data set", "pairs", "not distinguished", "copies", "wrongly distinguished", "parameters")
    for name, one in outcomes.items():
        numbers = (one.num_pairs, one.undistinguished, one.num_graphs, one.wrongly_distinguished)
        table.add_row(name, *(f"{number:,}" for number in (*numbers, one.num_parameters)))
    return table
