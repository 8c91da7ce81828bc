"""`cocn preprocess`: turn a graph into a store that models train on."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from jobs.commands.source import (
    AnswerKind,
    Assignments,
    ConfigFiles,
    DataRoot,
    Directed,
    Features,
    IdColumn,
    Json,
    LabelColumn,
    Labels,
    Nodes,
    Seed,
    Side,
    SourceColumn,
    SplitColumn,
    TargetColumn,
    WeightColumn,
    resolve_options,
)
from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.storage.object_store import Remote
    from pipeline.training.prepare import Prepared


def register(app: typer.Typer) -> None:
    app.command("preprocess")(preprocess)


def preprocess(
    source: Annotated[str | None, typer.Argument(help="A dataset by name, or the path of a graph.")] = None,
    config: ConfigFiles = None,
    store: Annotated[str | None, typer.Option(help="Directory or URI (s3://, gs://) of the store.")] = None,
    data_root: DataRoot = None,
    side: Side = None,
    nodes: Nodes = None,
    seed: Seed = None,
    features: Features = None,
    labels: Labels = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    answer: AnswerKind = None,
    split_column: SplitColumn = None,
    weight_column: WeightColumn = None,
    directed: Directed = None,
    truncate: Annotated[int | None, typer.Option(min=1, help="Largest distance to count, in hops.")] = None,
    depth: Annotated[
        Literal["truncated", "full"] | None, typer.Option(help="'full' finds every reachable node.")
    ] = None,
    landmarks: Annotated[
        int | None, typer.Option(min=1, help="Random sources; by default all, if the budget allows.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Core-seconds that exact profiles may take.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Orders of the heads: window, profile, lappe, rwpe or rcm.")
    ] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Number of sequences, one per head.")] = None,
    length: Annotated[int | None, typer.Option(min=2, help="Nodes in a segment.")] = None,
    split: Annotated[int | None, typer.Option(min=0, help="Split that segments are cut for.")] = None,
    segments: Annotated[bool, typer.Option(help="Also cut segments.")] = True,
    replace: Annotated[bool, typer.Option("--replace", help="Replace stages with other parameters.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Directory for pictures of the orders and a coverage table.")
    ] = None,
    assignments: Assignments = None,
    as_json: Json = False,
) -> None:
    """Ingest a graph, compute positions with Ray tasks, order the nodes for each head and cut segments.

    Finished stages are kept, and a run that was killed continues from the batches it finished.

    Example: [bold]cocn preprocess chameleon --data-root datasets --store stores/chameleon[/bold]
    """
    from pipeline.config.loading import load_config, parse_assignments
    from pipeline.positions.stage import DEFAULT_BUDGET_SECONDS
    from pipeline.storage.files import require_directory
    from pipeline.training.preflight import check_places
    from pipeline.training.prepare import prepare

    overrides = {
        "data.store": store,
        "data.split": split,
        "positions.truncate": truncate,
        "positions.depth": depth,
        "positions.landmarks": landmarks,
        "positions.order": order,
        "model.heads": heads,
        "segments.length": length,
        **parse_assignments(assignments or ()),
    }
    resolved = load_config(config, overrides)
    options = resolve_options(
        resolved,
        source,
        data_root=data_root,
        side=side,
        num_nodes=nodes,
        seed=seed,
        features=features,
        labels=labels,
        source_column=source_column,
        target_column=target_column,
        id_column=id_column,
        label_column=label_column,
        answer=answer,
        split_column=split_column,
        weight_column=weight_column,
        directed=directed,
    )
    check_places(resolved)
    if plot is not None:
        require_directory(plot, "--plot")
    result = prepare(
        resolved,
        options,
        segments=segments,
        replace=replace,
        budget_seconds=DEFAULT_BUDGET_SECONDS if budget is None else budget,
        say=lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
    )
    if plot is not None and result.coverage is not None:
        _plot(result.store, plot, resolved.data.split)
    emit(result, as_json, None if as_json else _view(result))


def _plot(store: "Path | Remote", directory: Path, split: int) -> None:
    from pipeline.segments.adjacency_plots import write_plots
    from pipeline.store.access import open_store

    write_plots(open_store(store), directory, split)


def _view(result: "Prepared") -> "Table":
    from rich.table import Table

    table = Table("stage", "seconds", "peak memory", "", box=None, padding=(0, 2, 0, 0))
    for stage in result.stages:
        memory = f"{stage.peak_memory_bytes / 2**20:,.0f} MiB"
        table.add_row(
            stage.name, f"{stage.seconds:,.1f}", memory, "already done" if stage.done_before else ""
        )
    graphs = f"{result.num_graphs:,} graphs, " if result.num_graphs > 1 else ""
    covered = "" if result.coverage is None else f"; {result.coverage:.1%} of the edges covered"
    counts = f"{result.num_nodes:,} nodes, {result.num_edges:,} entries"
    table.caption = f"{graphs}{counts}{covered}\n{result.store}"
    table.caption_justify = "left"
    return table
