"""`cocn compare`: models side by side, in a table and in a report."""

from pathlib import Path
from typing import Annotated

import typer

from jobs.output import emit


def register(app: typer.Typer) -> None:
    app.command("compare")(compare)


def compare(
    experiment: Annotated[str, typer.Option(help="Name of the MLflow experiment.")] = "cocn",
    models: Annotated[str | None, typer.Option(help="Only these models, separated by commas.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only this dataset.")] = None,
    parent: Annotated[str | None, typer.Option(help="Only the children of this run.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the report to this HTML file.")] = None,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking URI.")] = None,
    output: Annotated[Path, typer.Option(help="Directory that runs were written to.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Compare trained models: mean, deviation, significance, time, memory; optionally as an HTML report.

    Example: [bold]cocn compare --models sparse,segment --out report.html[/bold]
    """
    from rich.console import Console, Group

    from pipeline.comparison.history import select_trainings
    from pipeline.comparison.publication import publish_report
    from pipeline.comparison.statistics import compare as compare_trainings
    from pipeline.comparison.statistics import comparison_table
    from pipeline.storage.files import require_file_place
    from pipeline.tracking.mlflow_store import existing_store

    if out is not None:
        require_file_place(out, "--out")
    store = existing_store(tracking_uri, output)
    names = [name.strip() for name in models.split(",") if name.strip()] if models else None
    selection = select_trainings(store, experiment, parent_id=parent, models=names, dataset=dataset)
    comparison = compare_trainings(selection)
    kept = publish_report(out, store, selection, comparison) if out is not None else None
    words = [*comparison.sentences, *comparison.notes]
    emit(comparison, as_json, Group(comparison_table(comparison), *words))
    if out is not None:
        beside = f", kept with run {kept}" if kept else ""
        Console(stderr=True).print(f"report: {out}{beside}", soft_wrap=True)
