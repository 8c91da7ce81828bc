"""`cocn tune`: search for good settings of a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import Assignments, ConfigFiles, DataRoot, Json
from jobs.output import emit, say

if TYPE_CHECKING:
    from rich.console import Group

    from pipeline.tuning.outcome import Tuned


def register(app: typer.Typer) -> None:
    app.command("tune")(tune)


def tune(
    model: Annotated[str, typer.Argument(help="The model whose settings to search for.")],
    config: ConfigFiles = None,
    source: Annotated[str | None, typer.Option("--data", help="A dataset by name, or a path.")] = None,
    data_root: DataRoot = None,
    store: Annotated[str | None, typer.Option(help="Store to train on: a directory or a URI.")] = None,
    space: Annotated[
        Path | None, typer.Option(help="YAML file of what to vary; by default the one for the model.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of settings to try.")] = 20,
    time_budget: Annotated[
        str | None, typer.Option(help="Time for the whole search, such as 90s, 30m or 1h30m.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Most epochs per trial.")] = None,
    grace: Annotated[int, typer.Option(min=1, help="Epochs that every trial gets.")] = 3,
    concurrent: Annotated[
        int | None, typer.Option(min=1, help="Trials at once; by default one per core.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sampled settings.")] = 0,
    experiment: Annotated[str | None, typer.Option(help="Name of the MLflow experiment.")] = None,
    output: Annotated[Path | None, typer.Option(help="Directory for everything that is written.")] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Try settings at random, stop weak trials early, and write the best as a configuration file.

    Trials run on Ray, on this machine or on the cluster of RAY_ADDRESS. The same command again continues.

    Example: [bold]cocn tune segment --data minesweeper --trials 50 --time-budget 1h[/bold]
    """
    from pipeline.config.loading import load_config, parse_assignments
    from pipeline.training.campaign import check_models
    from pipeline.training.prepare import open_prepared
    from pipeline.tuning.durations import parse_duration
    from pipeline.tuning.search import Budget, search
    from pipeline.tuning.space import read_space

    check_models([model])
    overrides = {
        "model.name": model,
        "data.source": source,
        "data.data_root": data_root,
        "data.store": store,
        "train.epochs": epochs,
        "tracking.experiment": experiment,
        "output": output,
        **parse_assignments(assignments or ()),
    }
    resolved = load_config(config, overrides)
    varied = read_space(space, resolved)
    seconds = None if time_budget is None else parse_duration("--time-budget", time_budget)
    budget = Budget(trials, seconds, grace, concurrent, seed)
    opened = open_prepared(resolved, say=say)
    tuned = search(resolved, opened, varied, budget)
    emit(tuned, as_json, None if as_json else _view(tuned))


def _view(tuned: "Tuned") -> "Group":
    from rich.console import Group
    from rich.table import Table

    table = Table("trial", "how it ended", "epochs", f"validation {tuned.metric}", "test")
    ranked = sorted(tuned.trials, key=lambda trial: -(trial.val_metric or float("-inf")))
    for trial in ranked[:10]:
        scores = ["" if value is None else f"{value:.4f}" for value in (trial.val_metric, trial.test_metric)]
        table.add_row(str(trial.number), trial.status, str(trial.epochs), *scores)
    mattered = sorted(tuned.importance.items(), key=lambda pair: -pair[1])
    lines = [f"  {key} = {value}" for key, value in tuned.best.point.items()]
    importance = ", ".join(f"{key} {share:.0%}" for key, share in mattered if share >= 0.005)
    return Group(
        table,
        "best settings:",
        *lines,
        *([f"what mattered: {importance}"] if importance else []),
        f"next: cocn train {tuned.model} --config {tuned.config_file}",
        f"report: {tuned.report}",
    )
