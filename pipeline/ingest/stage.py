"""Ingest: from any source to a verified store with a report of what was found."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue

from pipeline.config.marks import decisive_settings
from pipeline.config.settings import DataConfig, SourceOptions
from pipeline.ingest.apart import read_apart
from pipeline.ingest.archives import read_mat, read_npz
from pipeline.ingest.checks import (
    RawGraph,
    check_features,
    check_labels,
    check_not_empty,
    check_split_labels,
    check_splits,
    check_targets,
)
from pipeline.ingest.edgelists import TEXT_SUFFIXES, EdgeList, Numbering, collect_names
from pipeline.ingest.external_sort import EdgeSpill, SortedEdges
from pipeline.ingest.generators import minesweeper, power_law
from pipeline.ingest.graph_collections import assemble, motifs, read_collection
from pipeline.ingest.metis import read_metis
from pipeline.ingest.node_tables import ColumnNames, NodeColumns, check_surplus, merge_tables, read_node_file
from pipeline.ingest.published import BY_NAME, data_root, raw_file, read_published
from pipeline.ingest.pyg_graphs import GraphTensors, raw_graph, read_graphs, read_pt, union_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.spelling import suggest
from pipeline.storage.files import file_sha256
from pipeline.storage.object_store import Remote
from pipeline.store.access import create_store, find_store
from pipeline.store.arrays import Answer, CollectionArrays, GraphArrays
from pipeline.store.cleaning import CleaningReport, EdgeReport, clean_edges, describe
from pipeline.store.graph_store import INGEST, GraphStore
from pipeline.store.manifest import StageTiming
from pipeline.store.splits import random_splits

_GENERATED = ("minesweeper", "power-law", "motifs")
#: Side of the published minesweeper board.
_PUBLISHED_SIDE = 100
_GRAPH_SUFFIXES = (".metis", ".graph", ".nkb")
DEFAULT_NODES = 100_000


class IngestParameters(BaseModel):
    """What determines the graph in a store; equal parameters give equal bytes."""

    model_config = ConfigDict(frozen=True)

    source: str
    options: dict[str, JsonValue]
    files: dict[str, str]
    """SHA-256 of every file that is read, by name."""


@dataclass(frozen=True)
class Ingested:
    """A store and whether it already existed."""

    store: GraphStore
    fresh: bool


def options_from(data: DataConfig) -> SourceOptions:
    """The options of the source named in the configuration."""
    return SourceOptions.model_validate({name: getattr(data, name) for name in SourceOptions.model_fields})


def ingest(
    options: SourceOptions,
    place: Path | Remote,
    accept: Callable[[int, int], None] = lambda nodes, splits: None,
) -> Ingested:
    """Read a source, clean it and write it as a store; the same source at the same place is kept.

    Args:
        options: The source.
        place: Where the store goes.
        accept: Called with the numbers of nodes and splits before anything is written; raises to refuse them.

    Raises:
        UserError: If the source is invalid, or a different graph is at `place`; nothing is then left behind.
    """
    start = time.monotonic()
    parameters = describe_source(options)
    found = find_store(place, parameters)
    if found is not None:
        accept(found.num_nodes, found.num_splits)
        return Ingested(found, fresh=False)
    scratch = place if isinstance(place, Path) else place.cache.directory
    with read_source(options, existing_parent(scratch)) as (graph, report):
        accept(graph.csr.num_nodes, len(graph.splits))
        store = create_store(place, graph, parameters, report)
    store.record_timing(INGEST, StageTiming.since(start))
    return Ingested(store, fresh=True)


@contextmanager
def read_source(
    options: SourceOptions, scratch: Path | None = None
) -> Iterator[tuple[GraphArrays | CollectionArrays, CleaningReport]]:
    """Cleaned graphs and their report; a large graph is kept in files under `scratch` while the block
    runs."""
    if is_collection(options):
        collection, edges = _collect(options)
        yield collection, describe(collection, edges)
        return
    if _is_saved_by_torch(options):
        found = read_graphs(read_pt(Path(options.source)), options.source)
        arranged, edges = arrange_tensors(found, options)
        yield arranged, describe(arranged, edges)
        return
    if is_generated(options):
        graph = _generate(options)
        rows = np.repeat(np.arange(graph.csr.num_nodes), graph.csr.degrees())
        once = rows < graph.csr.indices
        _, edges = clean_edges(rows[once], graph.csr.indices[once], graph.csr.num_nodes)
        yield graph, describe(graph, edges)
        return
    with tempfile.TemporaryDirectory(prefix=".cocn-", dir=scratch) as directory:
        raw = _read(options, Path(directory))
        check_split_labels(options.source, raw)
        graph = _finish(raw, options)
        yield graph, describe(graph, raw.edges)


def arrange_tensors(
    tensors: GraphTensors, options: SourceOptions
) -> tuple[GraphArrays | CollectionArrays, EdgeReport]:
    """Clean the graph or collection read from PyG, and split it if it has no masks."""
    if tensors.sizes is not None:
        _refuse_direction(options)
        graphs = union_of(tensors, options.source)
        return assemble(short_name(options), graphs, num_folds=options.num_splits, seed=options.seed)
    raw = raw_graph(tensors, options.source, directed=options.directed is True)
    check_split_labels(options.source, raw)
    return _finish(raw, options), raw.edges


def _is_saved_by_torch(options: SourceOptions) -> bool:
    """Whether the source is a file written by `torch.save`."""
    return options.source.endswith(".pt") and Path(options.source).is_file()


def existing_parent(path: Path) -> Path:
    """The nearest existing directory above `path`."""
    return next(parent for parent in Path(path).absolute().parents if parent.is_dir())


def describe_source(options: SourceOptions) -> IngestParameters:
    """The identity of a source: its options and the digests of its files, but no paths."""
    files = {path.name: file_sha256(path) for path in _source_files(options)}
    unused = {"source", "features", "labels"}  # named and digested separately
    if options.source != "minesweeper" or not is_generated(options):
        unused.add("side")
    if options.source != "motifs":
        unused.add("num_graphs")
    decisive = decisive_settings(options, "store")
    used = {name: value for name, value in decisive.items() if name not in unused}
    return IngestParameters(source=short_name(options), options=used, files=dict(sorted(files.items())))


def short_name(options: SourceOptions) -> str:
    """The name of a dataset, or of a file without its directories and suffixes."""
    if options.source in _GENERATED or options.source in BY_NAME:
        return options.source
    return Path(options.source).name.split(".")[0]


def is_generated(options: SourceOptions) -> bool:
    """Whether the graph is generated here; minesweeper is, unless its published files are available."""
    if options.source not in _GENERATED:
        return False
    if options.side != _PUBLISHED_SIDE:
        return True
    entry = BY_NAME.get(options.source)
    return entry is None or raw_file(entry, data_root(options.data_root)) is None


def is_collection(options: SourceOptions) -> bool:
    """Whether the source has many graphs instead of one."""
    return options.source == "motifs" or (
        options.source in BY_NAME and BY_NAME[options.source].task != "node"
    )


def _collect(options: SourceOptions) -> tuple[CollectionArrays, EdgeReport]:
    folds, seed = options.num_splits, options.seed
    _refuse_direction(options)
    if options.source == "motifs":
        return motifs(options.num_graphs, seed=seed, num_folds=folds)
    shares = (options.train_share, options.validation_share)
    entry = BY_NAME[options.source]
    return read_collection(entry, options.data_root, num_folds=folds, seed=seed, shares=shares)


def _refuse_direction(options: SourceOptions) -> None:
    if options.directed is True:
        raise UserError(
            f"Expected an undirected collection of graphs (got --directed for '{options.source}')"
        )


def _generate(options: SourceOptions) -> GraphArrays:
    if options.source == "minesweeper":
        return minesweeper(options.side, seed=options.seed, num_splits=options.num_splits)
    return power_law(options.num_nodes or DEFAULT_NODES, seed=options.seed)


def _read(options: SourceOptions, directory: Path) -> RawGraph:
    entry = BY_NAME.get(options.source)
    if entry is not None:
        return read_published(entry, options.data_root, directed=options.directed is True)
    path = Path(options.source)
    if not path.is_file():
        raise UserError(_unknown(options.source))
    name = path.name.removesuffix(".gz")
    if name.endswith(".npz"):
        return read_npz(path, directed=options.directed is True)
    if name.endswith(".mat"):
        return read_mat(path, directed=options.directed is True)
    if name.endswith((*TEXT_SUFFIXES, ".parquet", *_GRAPH_SUFFIXES)):
        return _read_edges(options, path, directory)
    known = ", ".join((*TEXT_SUFFIXES, ".parquet", ".npz", ".mat", ".pt", *_GRAPH_SUFFIXES))
    raise UserError(f"Expected '{path}' to end in one of {known} (got '{path.suffix}')")


def _read_edges(options: SourceOptions, path: Path, directory: Path) -> RawGraph:
    """Edges from one file, features and labels from others."""
    names = ColumnNames(options.id_column, options.label_column, options.split_column, options.answer)
    tables = [
        read_node_file(file, purpose, names)
        for purpose, file in (("features", options.features), ("labels", options.labels))
        if file is not None
    ]
    nodes = merge_tables(tables)
    if path.suffix in _GRAPH_SUFFIXES:
        raw = _read_graph_file(path, options)
        if nodes is not None and nodes.num_rows != raw.csr.num_nodes:
            raise UserError(
                f"Expected '{nodes.path}' to have a row for each of {raw.csr.num_nodes} nodes "
                f"(got {nodes.num_rows})"
            )
        return _with_nodes(raw, nodes, options.answer)
    edges = EdgeList(path, options.source_column, options.target_column, options.weight_column)
    numbering = _choose_numbering(edges, nodes, options.num_nodes)
    check_not_empty(str(path), numbering.num_nodes)
    sorted_edges = _sort_edges(edges, numbering, directory, directed=options.directed is True)
    size = numbering.num_nodes
    raw = RawGraph(
        name=short_name(options),
        csr=sorted_edges.csr,
        edges=sorted_edges.report,
        features=np.zeros((size, 0), dtype=np.float32),
        labels=np.full(size, -1),
        splits=np.zeros((0, size), dtype=np.int8),
        ids=numbering.ids,
        edge_values=sorted_edges.values,
    )
    if nodes is not None and options.num_nodes != nodes.num_rows:
        check_surplus(nodes, raw.csr.degrees(), path)
    return _with_nodes(raw, nodes, options.answer)


def _sort_edges(edges: EdgeList, numbering: Numbering, directory: Path, *, directed: bool) -> SortedEdges:
    spill: EdgeSpill | None = None
    for block in edges.blocks():
        if spill is None:
            num_values = 0 if block.values is None else block.values.shape[1]
            spill = EdgeSpill(directory, numbering.num_nodes, directed=directed, num_values=num_values)
        spill.append(*numbering.number(edges, block), block.values)
    if spill is None:
        raise UserError(f"Expected '{edges.path}' to hold edges (got no rows)")
    return spill.finish()


def _choose_numbering(edges: EdgeList, nodes: NodeColumns | None, num_nodes: int | None) -> Numbering:
    if nodes is not None:
        return Numbering(nodes.num_rows) if nodes.ids is None else Numbering.from_names(nodes.ids)
    if num_nodes is not None:
        return Numbering(num_nodes)
    return Numbering.from_names(collect_names(edges))


def _read_graph_file(path: Path, options: SourceOptions) -> RawGraph:
    if path.stat().st_size == 0:
        raise UserError(f"Expected '{path}' to hold a graph (got an empty file)")
    if path.suffix == ".nkb":
        arrays = read_apart("nkb", path)
        size, rows, columns = int(arrays["size"]), arrays["row"], arrays["column"]
    else:
        size, (rows, columns) = read_metis(path)
    check_not_empty(str(path), size)
    csr, report = clean_edges(rows, columns, size, directed=options.directed is True)
    return RawGraph(
        name=short_name(options),
        csr=csr,
        edges=report,
        features=np.zeros((size, 0), dtype=np.float32),
        labels=np.full(size, -1),
        splits=np.zeros((0, size), dtype=np.int8),
    )


def _with_nodes(raw: RawGraph, nodes: NodeColumns | None, answer: Answer) -> RawGraph:
    if nodes is None:
        return raw
    size, origin = raw.csr.num_nodes, str(nodes.path)
    if nodes.targets is not None:
        raw = replace(raw, targets=check_targets(origin, nodes.targets, answer, size), answer=answer)
    return replace(
        raw,
        classes=nodes.classes,
        features=check_features(origin, nodes.features, size),
        labels=check_labels(origin, nodes.labels, size),
        splits=check_splits(origin, nodes.splits, size),
    )


def _finish(raw: RawGraph, options: SourceOptions) -> GraphArrays:
    splits = raw.splits
    if not len(splits):
        splits = random_splits(
            raw.known_classes(),
            num_splits=options.num_splits,
            train=options.train_share,
            validation=options.validation_share,
            seed=options.seed,
        )
    return GraphArrays(
        name=short_name(options),
        csr=raw.csr if options.directed == "auto" else replace(raw.csr, ways=None),
        features=raw.features,
        labels=raw.labels,
        splits=splits,
        num_classes=raw.num_classes,
        directed=options.directed is True,
        ids=raw.ids,
        edge_values=raw.edge_values,
        classes=raw.classes,
        targets=raw.targets,
        answer=raw.answer,
    )


def _source_files(options: SourceOptions) -> list[Path]:
    if is_generated(options):
        return []
    entry = BY_NAME.get(options.source)
    if entry is not None:
        found = raw_file(entry, data_root(options.data_root))
        if found is not None and entry.task != "node":
            # Labels, boundaries and edges of a collection are separate files.
            return sorted(path for path in found.parent.iterdir() if path.is_file())
        return [] if found is None else [found]
    path = Path(options.source)
    if not path.is_file():
        raise UserError(_unknown(options.source))
    files = [path, *(file for file in (options.features, options.labels) if file is not None)]
    for file in files:
        if not file.is_file():
            raise UserError(f"Expected '{file}' to be a file (got nothing there)")
    return files


def _unknown(source: str) -> str:
    names = sorted({*_GENERATED, *BY_NAME})
    hint = suggest(source, names, "`cocn datasets list` shows the names")
    return f"Expected 'source' to be a dataset or an existing file (got '{source}'): {hint}"
