"""`cocn ui`: MLflow's user interface on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("ui")(ui)


def ui(
    experiment: Annotated[str, typer.Option(help="Name of the MLflow experiment to open.")] = "cocn",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking URI.")] = None,
    output: Annotated[Path, typer.Option(help="Directory that runs were written to.")] = Path("runs"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Open MLflow's user interface on the runs of this directory, reachable from this machine only.

    Example: [bold]cocn ui --port 5050[/bold]
    """
    from pipeline.tracking.mlflow_server import serve
    from pipeline.tracking.mlflow_store import existing_store
    from pipeline.tracking.runs import ARTIFACTS

    store = existing_store(tracking_uri, output)
    if store.web_address is not None:
        _open(store.runs_page(store.web_address, experiment), browser)
        return
    with serve(store.uri, port, artifacts=output / ARTIFACTS) as server:
        _open(store.runs_page(server.address, experiment), browser)
        typer.echo("Press Ctrl-C to stop.")
        server.wait()


def _open(page: str, browser: bool) -> None:
    typer.echo(f"MLflow runs at {page}")
    if browser:
        typer.launch(page)
