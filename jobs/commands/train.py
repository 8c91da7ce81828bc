"""`cocn train`: train models on a store, in one process or on many workers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands.source import ConfigFiles, DataRoot
from jobs.output import emit, say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from pipeline.config.loading import Config
    from pipeline.training.campaign import Campaign


MODELS = (
    "vanilla, expanded, sparse, segment; or an opponent: mlp, sgc, sign, linkx, gcn, sage, gat, gin, dirgnn, "
    "sgformer, polynormer."
)


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    models: Annotated[
        list[str],
        typer.Argument(help=MODELS),
    ],
    config: ConfigFiles = None,
    source: Annotated[str | None, typer.Option("--data", help="A dataset by name, or a path.")] = None,
    data_root: DataRoot = None,
    store: Annotated[
        str | None, typer.Option(help="Store to train on, from cocn preprocess: a directory or a URI.")
    ] = None,
    task: Annotated[
        Literal["auto", "node", "graph", "link"] | None, typer.Option(help="What to predict.")
    ] = None,
    protocol: Annotated[
        Literal["holdout", "gin"] | None,
        typer.Option(help="Folds of graphs: select on another fold, or, as in the GIN paper, on the test."),
    ] = None,
    preset: Annotated[
        bool, typer.Option("--preset", help="The paper's settings for the dataset; files and flags override.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="The preset, smaller where it would take hours without a GPU.")
    ] = False,
    splits: Annotated[int | None, typer.Option(min=1, help="Train on the first N splits.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Train with N seeds, counting up from train.seed.")] = 1,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training nodes.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Records in a batch, over all workers.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            help="Processes, or a range such as 2..8; they divide a step's rows, or a graph's heads."
        ),
    ] = None,
    cpus_per_worker: Annotated[int | None, typer.Option(help="Cores per worker.")] = None,
    gpus_per_worker: Annotated[float | None, typer.Option(help="GPUs per worker.")] = None,
    time_budget: Annotated[
        float | None, typer.Option(help="Seconds for the whole training, including validation and test.")
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="Name of the MLflow experiment.")] = None,
    output: Annotated[Path | None, typer.Option(help="Directory for everything that is written.")] = None,
    register_as: Annotated[
        str | None,
        typer.Option("--register", help="Register the best training as this model in MLflow."),
    ] = None,
    alias: Annotated[str, typer.Option(help="Alias that the registered version gets.")] = "latest-trained",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of the configuration: KEY=VALUE; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Train models and record them in MLflow; the same command again continues where it stopped.

    Example: [bold]cocn train sparse segment --data minesweeper --splits 3 --workers 2[/bold]
    """
    from pipeline.config.loading import load_config, parse_assignments
    from pipeline.training.campaign import check_models, run_campaign, vary
    from pipeline.training.preflight import check_graph, check_places, check_resources, check_settings
    from pipeline.training.prepare import open_prepared
    from pipeline.training.registration import register_best

    check_models(models)
    overrides = {
        "data.source": source,
        "data.data_root": data_root,
        "data.store": store,
        "data.task": task,
        "data.protocol": protocol,
        "train.epochs": epochs,
        "train.batch_size": batch_size,
        "train.learning_rate": learning_rate,
        "train.time_budget": time_budget,
        "resources.workers": workers,
        "resources.cpus_per_worker": cpus_per_worker,
        "resources.gpus_per_worker": gpus_per_worker,
        "tracking.experiment": experiment,
        "output": output,
        **parse_assignments(assignments or ()),
    }
    resolved = load_config(config, overrides)
    settings = preset_settings(models, config, overrides, published=preset or quick, quick=quick)
    check_settings(vary(settings[name], name, resolved.data.split, resolved.train.seed) for name in models)
    check_resources(resolved.resources)
    check_places(resolved)
    chosen = [resolved.data.split] if splits is None else list(range(splits))
    opened = open_prepared(settings[models[0]], models=models[:1], splits=chosen, say=say)
    for name in models:
        check_graph(opened, vary(settings[name], name, chosen[0], resolved.train.seed, opened), chosen)
    for name in models[1:]:
        # The same store; only the stages that this model reads and the first one does not.
        open_prepared(settings[name], models=[name], splits=chosen)
    first = resolved.train.seed
    seeded = range(first, first + seeds)
    campaign = run_campaign(settings[models[0]], opened, models, chosen, seeded, settings=settings)
    if register_as is not None:
        say(f"registered: {register_best(resolved, campaign.trainings, register_as, alias).uri}")
    emit(campaign, as_json, _table(campaign))


def preset_settings(
    models: "Sequence[str]",
    files: list[Path] | None,
    overrides: "Mapping[str, object]",
    *,
    published: bool,
    quick: bool,
) -> "dict[str, Config]":
    """The configuration of each model, below the files and the flags.

    Opponents have their own settings for any graph; with `published` all models take the dataset's.
    """
    from pipeline.config.loading import load_config
    from pipeline.presets import default_preset, load_preset

    source = load_config(files, overrides).data.source
    presets = {
        name: load_preset(source, name, quick=quick) if published else default_preset(name) for name in models
    }
    return {name: load_config(files, overrides, preset=preset) for name, preset in presets.items()}


def _table(campaign: "Campaign") -> "Table":
    from rich.table import Table

    table = Table("model", "data", "metric", "test", "trainings", "seconds each")
    for row in campaign.summaries:
        score = f"{100 * row.mean:.2f}" + (f" ± {100 * row.std:.2f}" if row.num_trainings > 1 else "")
        name = row.model if row.protocol == "holdout" else f"{row.model} ({row.protocol} protocol)"
        cells = (name, row.dataset, row.metric, score, str(row.num_trainings), f"{row.mean_seconds:.1f}")
        table.add_row(*cells)
    return table
