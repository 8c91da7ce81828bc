"""`cocn doctor`: check that this machine, or a cluster, has what a run needs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.output import emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.cluster.doctor import Report


def register(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
    start_ray: Annotated[
        bool, typer.Option("--start-ray", help="Also start Ray (about 8 s) and run a task.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Directory that runs write to.")] = Path("runs"),
    address: Annotated[
        str | None, typer.Option(help="Check the Ray cluster with this dashboard instead of this machine.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="URI (s3://, gs://) where the cluster stores checkpoints.")
    ] = None,
    tracking_uri: Annotated[
        str | None, typer.Option(help="MLflow tracking URI that the cluster must reach.")
    ] = None,
) -> None:
    """Check versions, device, memory, disk, Ray and MLflow, and say how to fix what is wrong.

    With --address, check every node of a cluster: versions, GPUs, shared storage, MLflow, authentication.

    Example: [bold]cocn doctor --address http://127.0.0.1:8265 --output /shared/runs[/bold]
    """
    if address is not None:
        report = _examine_cluster(address, output, storage, tracking_uri)
    else:
        from pipeline.cluster.doctor import examine

        report = examine(output=output, start_ray=start_ray)
    emit(report, as_json, None if as_json else _view(report))
    if report.status == "problem":
        raise typer.Exit(1)


def _examine_cluster(address: str, output: Path, storage: str | None, tracking_uri: str | None) -> "Report":
    from pipeline.cluster.job_api import connect
    from pipeline.cluster.survey import examine_cluster
    from pipeline.config.loading import load_config

    config = load_config(None, {"output": output, "storage.uri": storage, "tracking.uri": tracking_uri})
    return examine_cluster(connect(address), config)


def _view(report: "Report") -> "RenderableType":
    from rich.table import Table

    colours = {"ok": "green", "warning": "yellow", "problem": "bold red"}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for check in report.checks:
        fix = f"\n[dim]{check.fix}[/dim]" if check.fix else ""
        table.add_row(f"[{colours[check.status]}]{check.status}", check.name, check.detail + fix)
    return table
