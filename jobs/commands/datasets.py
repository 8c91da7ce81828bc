"""`cocn datasets`: which graphs are available, and what one of them contains."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import (
    ConfigFiles,
    DataRoot,
    Directed,
    Features,
    IdColumn,
    Json,
    LabelColumn,
    Labels,
    Nodes,
    Side,
    SplitColumn,
    resolve_options,
)
from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.storage.object_store import Remote
    from pipeline.store.cleaning import CleaningReport
    from pipeline.store.manifest import Manifest, StageTiming


@dataclass(frozen=True)
class Listed:
    """A dataset that can be referred to by name."""

    name: str
    nodes: int | None
    edges: int | None
    features: int | None
    classes: int | None
    splits: int
    where: str
    graphs: int | None = 1
    """Graphs in a collection; nodes and edges are counted over all of them."""
    task: str = "node"
    metric: str = ""
    """The table of the paper; empty for datasets that it does not use."""
    protocol: str = ""
    """How it is split there, and how often."""


@dataclass(frozen=True)
class Listing:
    datasets: tuple[Listed, ...]


@dataclass(frozen=True)
class SourceInfo:
    """What a source contains."""

    source: str
    report: "CleaningReport"
    paper: "PaperInfo | None" = None


@dataclass(frozen=True)
class PaperInfo:
    """How the paper uses a dataset and what it says about it."""

    table: str
    task: str
    metric: str
    protocol: str
    note: str
    printed: dict[str, str]
    """Statistics as printed."""
    misprints: tuple[str, ...]


@dataclass(frozen=True)
class StoreInfo:
    """What a store contains; every file has been checked against the manifest."""

    store: "Path | Remote"
    digest: str
    manifest: "Manifest"
    timings: "dict[str, StageTiming]"


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="List datasets, and show what graphs and stores contain.")
    group.command("list")(list_datasets)
    group.command("info")(info)
    app.add_typer(group, name="datasets")


def list_datasets(data_root: DataRoot = None, as_json: Json = False) -> None:
    """List the datasets that can be referred to by name.

    Example: [bold]cocn datasets list --data-root datasets[/bold]
    """
    from pipeline.ingest import published as catalogue
    from pipeline.paper.registry import BENCHMARKS, BENCHMARKS_BY_NAME

    root = catalogue.data_root(data_root)
    rows = [
        Listed("minesweeper", None, None, 7, 2, 10, "generated, --side"),
        Listed("power-law", None, None, 16, 4, 1, "generated, --nodes"),
        Listed("motifs", None, None, None, 3, 10, "generated, data.num_graphs", None, "graph"),
    ]
    for entry in catalogue.PUBLISHED:
        found = catalogue.raw_file(entry, root)
        absent = "needs --data-root" if entry.loader is None else "downloaded on first use"
        where = "found" if found is not None else absent
        if entry.name != "minesweeper" or found is not None:
            counts = (entry.nodes, entry.edges, entry.features, entry.classes, entry.splits)
            rows.append(Listed(entry.name, *counts, where, entry.graphs, entry.task))
    if any(row.name == "minesweeper" and row.nodes for row in rows):
        del rows[0]
    for each in BENCHMARKS:
        if each.entry is None:
            where = "cocn reproduce isomorphism"
            rows.append(Listed(each.name, None, None, None, None, 1, where, each.counts["graphs"]))
    listing = Listing(
        tuple(
            replace(row, task=known.task, metric=known.metric, protocol=str(known.protocol))
            if (known := BENCHMARKS_BY_NAME.get(row.name)) is not None
            else row
            for row in rows
        )
    )
    emit(listing, as_json, None if as_json else _list_view(listing))


def info(
    source: Annotated[str, typer.Argument(help="A dataset, the path of a graph, or a store.")],
    config: ConfigFiles = None,
    data_root: DataRoot = None,
    side: Side = None,
    nodes: Nodes = None,
    features: Features = None,
    labels: Labels = None,
    id_column: IdColumn = None,
    label_column: LabelColumn = None,
    split_column: SplitColumn = None,
    directed: Directed = None,
    as_json: Json = False,
) -> None:
    """Describe a graph: counts, what cleaning drops, degrees, components, classes, splits, homophily.

    A store is verified file by file.

    Example: [bold]cocn datasets info stores/chameleon --json[/bold]
    """
    from pipeline.config.loading import load_config
    from pipeline.config.locations import Uri, parse_place
    from pipeline.ingest.stage import read_source
    from pipeline.store.access import open_store
    from pipeline.store.manifest import MANIFEST_NAME

    path = parse_place(source)
    if isinstance(path, Uri) or path.is_dir() or path.name == MANIFEST_NAME:
        store = open_store(path.parent if path.name == MANIFEST_NAME else path)
        store.verify()
        content = StoreInfo(store.place, store.digest, store.manifest, store.timings())
        emit(content, as_json, None if as_json else _store_view(content))
        return
    options = resolve_options(
        load_config(config),
        source,
        data_root=data_root,
        side=side,
        num_nodes=nodes,
        features=features,
        labels=labels,
        id_column=id_column,
        label_column=label_column,
        split_column=split_column,
        directed=directed,
    )
    with read_source(options) as (_, report):
        described = SourceInfo(source, report, _paper_info(source))
        emit(described, as_json, None if as_json else _info_view(described))


def _paper_info(source: str) -> PaperInfo | None:
    from pipeline.paper.registry import BENCHMARKS_BY_NAME

    known = BENCHMARKS_BY_NAME.get(source)
    if known is None:
        return None
    slips = tuple(f"{slip.what} {slip.printed}: {slip.note}" for slip in known.misprints())
    return PaperInfo(
        table=known.table,
        task=known.task,
        metric=known.metric,
        protocol=str(known.protocol),
        note=known.protocol.note,
        printed=dict(known.printed()),
        misprints=slips,
    )


def _list_view(listing: Listing) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name")
    table.add_column("task")
    for heading in ("graphs", "nodes", "edges", "features", "classes"):
        table.add_column(heading, justify="right")
    for heading in ("metric", "splits", "raw files"):
        table.add_column(heading)
    for row in listing.datasets:
        counts = [row.graphs, row.nodes, row.edges, row.features, row.classes]
        made = "folds" if row.task == "graph" else "given"
        splits = row.protocol or (f"{row.splits} {made}" if row.splits else "random")
        readable = (f"{count:,}" if count is not None else "–" for count in counts)
        table.add_row(row.name, row.task, *readable, row.metric, splits, row.where)
    return table


def _store_view(content: StoreInfo) -> "Table":
    from rich.table import Table

    manifest = content.manifest
    table = Table("stage", "files", "MiB", "seconds", box=None, padding=(0, 2, 0, 0))
    for stage in manifest.stages:
        files = [entry for entry in manifest.files.values() if entry.stage == stage]
        timing = content.timings.get(stage)
        seconds = None if timing is None else timing.seconds
        size = sum(entry.bytes for entry in files) / 2**20
        table.add_row(stage, f"{len(files):,}", f"{size:,.1f}", "" if seconds is None else f"{seconds:,.1f}")
    graphs = f"{manifest.num_graphs:,} graphs, " if manifest.num_graphs > 1 else ""
    table.title = (
        f"{manifest.name}: {graphs}{manifest.num_nodes:,} nodes, {manifest.num_edges:,} entries, "
        f"{manifest.num_features:,} features, {manifest.num_classes} classes, {manifest.num_splits} splits"
    )
    table.title_justify = table.caption_justify = "left"
    table.caption = f"every file verified; digest {content.digest[:16]}"
    return table


def _info_view(content: SourceInfo) -> "Table":
    from rich.table import Table

    report, paper = content.report, content.paper
    edges, degrees = report.edges, report.degrees
    parts = [" / ".join(f"{size:,}" for size in split.values()) for split in report.split_sizes[:1]]
    collection = {"graphs": f"{report.num_graphs:,}"} if report.num_graphs > 1 else {}
    rows = collection | {
        "nodes": f"{report.num_nodes:,}, {degrees.isolated_nodes:,} isolated",
        "edges": f"{edges.undirected_edges:,} undirected, {edges.one_way:,} listed in one direction only",
        "dropped": f"{edges.self_loops:,} self-loops, {edges.duplicates:,} duplicates",
        "degrees": f"mean {degrees.mean:.2f}, median {degrees.median:g}, 99 % {degrees.percentile_99:g}, "
        f"largest {degrees.maximum:,}",
        "components": f"{report.components:,}, the largest {report.largest_component:,}",
        "features": f"{report.num_features:,}",
        "classes": ", ".join(f"{size:,}" for size in report.class_sizes) or "none",
        "unlabelled": f"{report.unlabelled:,}",
        "splits": f"{len(report.split_sizes)} × {parts[0]}" if parts else "none",
        "homophily": "unknown" if report.homophily is None else f"{report.homophily:.3f}",
    }
    if paper is not None:
        rows["in the paper"] = f"table {paper.table}: {paper.metric}, {paper.protocol}"
        rows["printed there"] = ", ".join(f"{what} {count}" for what, count in paper.printed.items())
        rows["misprints"] = "\n".join(paper.misprints) or "none"
    table = Table(
        show_header=False, box=None, padding=(0, 2, 0, 0), title=content.source, title_justify="left"
    )
    for name, text in rows.items():
        table.add_row(name, text)
    return table
