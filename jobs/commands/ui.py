"""`cocn ui`: MLflow's user interface on this machine."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command("ui")(ui)


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 5000,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking URI.")] = None,
    output: Annotated[Path, typer.Option(help="Directory that runs were written to.")] = Path("runs"),
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
) -> None:
    """Open MLflow's user interface on the runs of this directory, reachable from this machine only.

    Example: [bold]cocn ui --port 5050[/bold]
    """
    from pipeline.server import serve
    from pipeline.tracking import existing_store

    store = existing_store(tracking_uri, output)
    if store.web_address is not None:
        _say(f"MLflow runs at {store.web_address}")
        if browser:
            typer.launch(store.web_address)
        return
    with serve(store.uri, port, artifacts=output / "artifacts") as server:
        _say(f"MLflow runs at {server.address} (Ctrl-C ends it)")
        if browser:
            typer.launch(server.address)
        server.wait()


def _say(line: str) -> None:
    from rich.console import Console

    Console().print(line, highlight=False)
