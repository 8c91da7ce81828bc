"""`cocn bench`: measurements, one sub-command per module of pipeline/benchmarks.

To add one: write `pipeline/benchmarks/<name>.py` with `run(...)` that returns a frozen dataclass, and a
function marked `@target("<name>")` below.
"""

from collections.abc import Callable
from typing import Annotated, Literal

import typer

from jobs.output import emit

Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]
Command = Callable[..., None]

TARGETS: dict[str, Command] = {}


def target(name: str) -> Callable[[Command], Command]:
    """Mark a function as the sub-command `name`."""

    def mark(function: Command) -> Command:
        TARGETS[name] = function
        return function

    return mark


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Measure a part of the pipeline on this machine.")
    for name, function in TARGETS.items():
        group.command(name)(function)
    group.command("all")(run_all)
    app.add_typer(group, name="bench")


@target("tracking")
def tracking(
    steps: Annotated[int, typer.Option(min=1, help="Steps per round.")] = 2000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, alternately with and without tracking.")] = 3,
    log_every: Annotated[int, typer.Option(min=1, help="Log metrics every N steps.")] = 20,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking URI.")] = None,
    as_json: Json = False,
) -> None:
    """Measure how much tracking adds to the time of a training step.

    Example: [bold]cocn bench tracking --json[/bold]
    """
    from pipeline.benchmarks.tracking import run

    emit(run(steps=steps, rounds=rounds, log_every=log_every, uri=tracking_uri), as_json)


@target("segments")
def segments(
    nodes: Annotated[int, typer.Option(min=100, help="Nodes of the power-law graph.")] = 421_961,
    as_json: Json = False,
) -> None:
    """Compare the cost of building segments with sorting, and of streaming them with training on them.

    Example: [bold]cocn bench segments --nodes 421961 --json[/bold]
    """
    from pipeline.benchmarks.segments import run

    emit(run(nodes), as_json)


@target("expanded")
def expanded(
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: only check that it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a training step of Expanded CoCN against the paper's dense equations, and how it scales.

    Example: [bold]cocn bench expanded --json[/bold]
    """
    import os

    # Read once, on torch's first allocation: huge pages save large tensors thousands of page faults.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from pipeline.benchmarks.expanded import run

    emit(run(300, 1200, (400, 1600)) if quick else run(), as_json)


@target("positions")
def positions(
    nodes: Annotated[int, typer.Option(min=1000, help="Nodes of the power-law graph.")] = 100_000,
    truncate: Annotated[int, typer.Option(min=1, help="Number of hops to count.")] = 4,
    generator: Annotated[
        Literal["hyperbolic", "barabasi-albert"], typer.Option(help="Model that generates the graph.")
    ] = "hyperbolic",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the graph.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure distance profiles of all pairs by shared sweeps against networkit's search from each source.

    Example: [bold]cocn bench positions --nodes 100000 --json[/bold]
    """
    from pipeline.benchmarks.positions import run

    emit(run(nodes, truncate=truncate, seed=seed, generator=generator), as_json)


@target("train")
def train(
    nodes: Annotated[int, typer.Option(min=1000, help="Nodes of the power-law graph.")] = 421_961,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 9,
    quick: Annotated[bool, typer.Option("--quick", help="Only check that it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a training step of Segment CoCN, how it scales, and what two workers and fixed segments gain.

    Example: [bold]cocn bench train --nodes 421961 --json[/bold]
    """
    from pipeline.benchmarks.train import run

    emit(run(2000, small_nodes=1000, rounds=1) if quick else run(nodes, rounds=rounds), as_json)


@target("baselines")
def baselines(
    nodes: Annotated[int, typer.Option(min=1000, help="Nodes of the power-law graph.")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 3,
    as_json: Json = False,
) -> None:
    """Measure an epoch of mlp, sgc and sign with 8 % training nodes, against plain torch.

    Example: [bold]cocn bench baselines --json[/bold]
    """
    from pipeline.benchmarks.baselines import run

    emit(run(nodes, rounds=rounds), as_json)


@target("fullgraph")
def fullgraph(
    nodes: Annotated[int, typer.Option(min=1000, help="Nodes of the power-law graph.")] = 421_961,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Only check that it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a step of Sparse CoCN on a whole graph: against its past, the roofline, and how it scales.

    Example: [bold]cocn bench fullgraph --nodes 421961 --json[/bold]
    """
    from pipeline.benchmarks.fullgraph import run

    emit(run(4000, small_nodes=1000, rounds=1) if quick else run(nodes, rounds=rounds), as_json)


@target("start")
def start(
    nodes: Annotated[int, typer.Option(min=1000, help="Nodes of the graph in the store.")] = 421_961,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each measurement.")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Only check that it runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure the time from the command to the first step, as a multiple of importing torch.

    Example: [bold]cocn bench start --json[/bold]
    """
    from pipeline.benchmarks.start import run

    emit(run(2000, rounds=1) if quick else run(nodes, rounds=rounds), as_json)


def run_all(
    record: Annotated[
        bool, typer.Option("--record", help="Add a line per benchmark to pipeline/benchmarks/history.jsonl.")
    ] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Minutes allowed for each.")] = 3.0,
) -> None:
    """Run every benchmark with its defaults, each for a few minutes at most.

    Example: [bold]cocn bench all --record[/bold]
    """
    from rich.console import Console

    from pipeline.benchmarks.history import append, measure

    console = Console()
    for name in TARGETS:
        console.rule(name)
        measurement = measure(name, timeout=60 * minutes)
        if measurement is None:
            console.print(f"did not finish within {minutes:g} minutes (allow more with --minutes)")
            continue
        console.print_json(data=measurement.numbers)
        if record:
            append(measurement)
