"""`cocn plan`: what preprocessing will cost, before it runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import (
    Assignments,
    ConfigFiles,
    DataRoot,
    Json,
    Nodes,
    Side,
    resolve_options,
)
from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.training.estimate import Plan


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    source: Annotated[str | None, typer.Argument(help="A dataset, the path of a graph, or a store.")] = None,
    config: ConfigFiles = None,
    data_root: DataRoot = None,
    side: Side = None,
    nodes: Nodes = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Cores to share the work; by default all.")] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Core-seconds that exact profiles may take.")
    ] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Predict the memory, disk and time of every stage without running any.

    Example: [bold]cocn plan power-law --nodes 10000000 --json[/bold]
    """
    from pipeline.config.loading import load_config, parse_assignments
    from pipeline.positions.stage import DEFAULT_BUDGET_SECONDS
    from pipeline.training.estimate import make_plan

    resolved = load_config(config, parse_assignments(assignments or ()))
    options = resolve_options(resolved, source, data_root=data_root, side=side, num_nodes=nodes)
    seconds = DEFAULT_BUDGET_SECONDS if budget is None else budget
    result = make_plan(resolved, options, cores=cores, budget_seconds=seconds)
    emit(result, as_json, None if as_json else _view(result))


def _view(result: "Plan") -> "Table":
    from rich.table import Table

    table = Table("stage", "memory", "disk", "seconds", "", box=None, padding=(0, 2, 0, 0))
    for stage in result.stages:
        table.add_row(
            stage.name,
            f"{stage.memory_bytes / 2**30:,.2f} GiB",
            f"{stage.disk_bytes / 2**30:,.2f} GiB",
            f"{stage.seconds:,.0f}",
            stage.note,
        )
    about = "" if result.size.exact else "about "
    lines = [f"{about}{result.size.nodes:,} nodes, {result.size.entries:,} entries", *result.problems]
    table.caption = "\n".join(lines)
    table.caption_justify = "left"
    return table
