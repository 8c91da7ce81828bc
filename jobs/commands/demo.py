"""`cocn demo`: the whole pipeline on generated data, in minutes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.output import emit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pipeline.demo import Demo


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    output: Annotated[Path, typer.Option(help="Directory that everything is written to.")] = Path(
        "runs/demo"
    ),
    side: Annotated[int, typer.Option(min=10, max=2000, help="Side of the minesweeper board.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the board and of the models.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Generate minesweeper, preprocess it, train Segment and Sparse CoCN, compare them; under three minutes.

    Example: [bold]cocn demo --side 60[/bold]
    """
    from rich.console import Console

    from pipeline.demo import run_demo
    from pipeline.storage.files import require_directory

    require_directory(output, "--output")
    console = Console(stderr=True, highlight=False)
    done = run_demo(output, side, seed, console.print)
    emit(done, as_json, _view(done, output))


def _view(done: "Demo", output: Path) -> "RenderableType":
    from rich.console import Group

    from pipeline.comparison.statistics import comparison_table

    baselines = [f"  {line.name}: {line.metric} {line.value:.3f}" for line in done.baselines]
    return Group(
        comparison_table(done.comparison),
        *done.comparison.sentences,
        "",
        "To beat:",
        *baselines,
        "",
        f"store   {done.store}",
        f"report  {done.report}",
        f"runs    {done.tracking_uri}",
        "",
        f"Done in {done.seconds:.0f} s. Next:",
        f"  cocn ui --output {output}          browse these runs in MLflow",
        f"  cocn compare --experiment demo --output {output}",
        "  cocn train sparse segment --data minesweeper --splits 3 --workers 2",
    )
