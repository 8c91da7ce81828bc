"""`cocn race`: all models on one graph under one protocol."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from jobs.commands.source import Assignments, DataRoot, Json
from jobs.output import emit, say


def register(app: typer.Typer) -> None:
    app.command("race")(race)


def race(
    data: Annotated[str, typer.Argument(help="A dataset by name, or the path of a graph or store.")],
    models: Annotated[
        str | None, typer.Option(help="Only these, separated by commas; by default all that fit the graph.")
    ] = None,
    splits: Annotated[int, typer.Option(min=1, help="Train on the first N splits.")] = 3,
    time_budget: Annotated[
        str | None,
        typer.Option(help="Time for each model, over all its splits: 90, 90s, 20m, 1h; 20m by default."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Equal epochs instead of equal time; no early stopping.")
    ] = None,
    settings: Annotated[
        Literal["paper", "quick"] | None,
        typer.Option(help="Published settings, or smaller ones; by default smaller without a GPU."),
    ] = None,
    data_root: DataRoot = None,
    output: Annotated[Path, typer.Option(help="Directory of stores, runs and reports.")] = Path("runs"),
    out: Annotated[Path | None, typer.Option(help="HTML report; by default in the output directory.")] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Race all models on a graph: a table, paired tests, a chart and the winner; run again, it resumes.

    Example: [bold]cocn race minesweeper --splits 1 --time-budget 1m[/bold]
    """
    from rich.console import Group

    from pipeline.config.loading import parse_assignments
    from pipeline.race.entrants import Request
    from pipeline.race.verdict import race as run_race
    from pipeline.race.verdict import race_table
    from pipeline.runtime.durations import parse_duration
    from pipeline.runtime.errors import UserError

    if epochs is not None and time_budget is not None:
        raise UserError("Expected '--epochs' or '--time-budget' (got both)")
    budget = parse_duration(time_budget or "20m") if epochs is None else None
    names = tuple(name.strip() for name in (models or "").split(",") if name.strip())
    overrides = {"data.data_root": data_root, "output": output, **parse_assignments(assignments or ())}
    quick = (settings or ("paper" if _has_gpu() else "quick")) == "quick"
    request = Request(data, names, splits, budget, epochs, quick, overrides)
    found = run_race(request, say, out)
    emit(found, as_json, Group(race_table(found), "", found.verdict))
    say(f"report: {found.report}")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
