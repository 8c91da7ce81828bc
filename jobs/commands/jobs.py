"""`cocn jobs`: what is running on a Ray cluster."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.submit import ADDRESS, Address
from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.cluster.job_api import JobList

Job = Annotated[str, typer.Argument(help="Id of a job, from cocn jobs list.")]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Manage the jobs of a Ray cluster.")
    group.command("list")(list_jobs)
    group.command("status")(status)
    group.command("logs")(logs)
    group.command("stop")(stop)
    app.add_typer(group, name="jobs")


def list_jobs(address: Address = ADDRESS, as_json: Json = False) -> None:
    """Show the jobs of a cluster, newest first.

    Example: [bold]cocn jobs list --address http://127.0.0.1:8265[/bold]
    """
    from pipeline.cluster.job_api import connect

    found = connect(address).jobs()
    emit(found, as_json, None if as_json else _table(found))


def status(job: Job, address: Address = ADDRESS, as_json: Json = False) -> None:
    """Show the status of a job.

    Example: [bold]cocn jobs status train-1f3a5c7e9b0d[/bold]
    """
    from pipeline.cluster.job_api import connect

    emit(connect(address).job(job), as_json)


def logs(
    job: Job,
    address: Address = ADDRESS,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep printing until the job ends, and exit with its code.")
    ] = False,
) -> None:
    """Show what a job has printed.

    Example: [bold]cocn jobs logs train-1f3a5c7e9b0d --follow[/bold]
    """
    from pipeline.cluster.job_api import connect

    cluster = connect(address)
    if not follow:
        sys.stdout.write(cluster.logs(job))
        return
    cluster.job(job)
    raise typer.Exit(cluster.follow(job, sys.stdout.write).shell_code)


def stop(job: Job, address: Address = ADDRESS, as_json: Json = False) -> None:
    """Stop a job; submitted again, it continues where it stopped.

    Example: [bold]cocn jobs stop train-1f3a5c7e9b0d[/bold]
    """
    from pipeline.cluster.job_api import connect

    cluster = connect(address)
    cluster.stop(job)
    emit(cluster.wait(job), as_json)


def _table(found: "JobList") -> "Table":
    from rich.table import Table

    table = Table("job", "stage", "status", "seconds", "message", box=None, padding=(0, 2, 0, 0))
    for job in found.jobs:
        table.add_row(job.id, job.stage, job.status, f"{job.seconds:,.0f}", job.message)
    return table
