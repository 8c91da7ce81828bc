"""`cocn submit`: run a stage as a job on a Ray cluster."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from jobs.output import emit

ADDRESS = "http://127.0.0.1:8265"
Address = Annotated[
    str,
    typer.Option(envvar="COCN_ADDRESS", help="The cluster's dashboard; its token comes from RAY_AUTH_TOKEN."),
]


def register(app: typer.Typer) -> None:
    app.command("submit")(submit)


def submit(
    stage: Annotated[
        Literal["preprocess", "train", "predict", "compare"], typer.Argument(help="What the job does.")
    ],
    config: Annotated[Path, typer.Argument(help="YAML file; its paths are paths on the cluster.")],
    address: Address = ADDRESS,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show what the job prints and exit with its code.")
    ] = False,
    resources: Annotated[
        Path | None,
        typer.Option("--cluster", help="YAML file with resources, tracking and output for this cluster."),
    ] = None,
    installed: Annotated[
        bool, typer.Option("--installed", help="Run the cocn of the cluster's image; upload nothing.")
    ] = False,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="Any key of the configuration: KEY=VALUE; repeatable.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Submit a stage to a Ray cluster; mistakes are reported before anything is uploaded.

    Example: [bold]cocn submit train run.yaml --address http://127.0.0.1:8265 --follow[/bold]
    """
    from pipeline.cluster.job_api import connect
    from pipeline.cluster.submission import cluster_overrides
    from pipeline.cluster.submission import submit as send
    from pipeline.config.loading import load_config, parse_assignments

    overrides = cluster_overrides(resources) if resources is not None else {}
    resolved = load_config(config, {**overrides, **parse_assignments(assignments or ())})
    cluster = connect(address)
    submission = send(stage, resolved, cluster, upload=not installed)
    if not follow:
        emit(
            submission, as_json, f"{submission.id} submitted; cocn jobs logs {submission.id} shows its output"
        )
        return
    print(f"{submission.id} submitted; Ctrl-C leaves it running", file=sys.stderr, flush=True)  # noqa: T201
    state = cluster.follow(submission.id, _write)
    if as_json:
        emit(state, as_json)
    raise typer.Exit(state.shell_code)


def _write(chunk: str) -> None:
    sys.stdout.write(chunk)
    sys.stdout.flush()
