"""What preprocessing will cost: memory, disk and time of each stage, before anything runs."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import Config
from pipeline.config.locations import Uri
from pipeline.config.settings import SourceOptions
from pipeline.ingest.edgelists import TEXT_SUFFIXES, TextFormat
from pipeline.ingest.external_sort import MEMORY_EDGES
from pipeline.ingest.published import BY_NAME
from pipeline.ingest.stage import DEFAULT_NODES, existing_parent, is_collection, is_generated, read_source
from pipeline.positions.search import BYTES_IN_ROW, MAX_SOURCES
from pipeline.positions.stage import (
    COLUMN_LANDMARKS,
    DEFAULT_BUDGET_SECONDS,
    LANDMARKS,
    NANOSECONDS_PER_VISIT,
)
from pipeline.store.access import open_store
from pipeline.store.manifest import MANIFEST_NAME

# Measured on one core of a typical machine; they distinguish minutes from hours, no finer than that.
_TEXT_BYTES_PER_SECOND = 40e6
_WRITE_BYTES_PER_SECOND = 300e6
_SORT_BYTES_PER_EDGE = 60
_ORDER_SECONDS_PER_ENTRY = 2.5e-7
_SEGMENT_SECONDS_PER_RECORD = 4e-7
_ARRANGE_SECONDS_PER_NODE = 4e-4
_PROCESS_BYTES = 250 * 2**20
_RAY_START_SECONDS = 6.0
_SAMPLE_BYTES = 2**16


@dataclass(frozen=True)
class Size:
    """Counts of a graph, exact or estimated."""

    nodes: int
    entries: int
    """Entries of the adjacency structure: an undirected edge counts twice."""
    features: int
    splits: int
    exact: bool
    graphs: int = 1
    """Number of graphs in a collection."""
    text_bytes: int = 0


@dataclass(frozen=True)
class StagePlan:
    """What one stage will cost."""

    name: str
    memory_bytes: int
    """Peak memory of the largest process."""
    disk_bytes: int
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Plan:
    """What all stages will cost, and whether this machine can afford it."""

    source: str
    size: Size
    stages: tuple[StagePlan, ...]
    memory_bytes: int
    disk_bytes: int
    seconds: float
    problems: tuple[str, ...]


def make_plan(
    config: Config,
    options: SourceOptions,
    *,
    cores: int | None = None,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
) -> Plan:
    """Predict the cost of every stage from the size of the graph.

    Args:
        config: The configuration.
        options: The source; sizes of published datasets and stores are known, text files are estimated.
        cores: Cores that share the positions; all by default.
        budget_seconds: Core-seconds that exact profiles may take.
    """
    cores = cores or os.cpu_count() or 1
    size = _measure(options)
    stages: tuple[StagePlan, ...] = (
        _plan_ingest(size),
        _plan_positions(size, config, cores, budget_seconds),
        _plan_orders(size, config),
        _plan_segments(size, config),
    )
    if size.graphs > 1:
        stages = (_plan_ingest(size), _plan_arrangement(size, config))
    memory = max(stage.memory_bytes for stage in stages)
    disk = sum(stage.disk_bytes for stage in stages)
    return Plan(
        source=options.source,
        size=size,
        stages=stages,
        memory_bytes=memory,
        disk_bytes=disk,
        seconds=sum(stage.seconds for stage in stages),
        problems=tuple(_find_problems(memory, disk, _local_place(config))),
    )


def _measure(options: SourceOptions) -> Size:
    """The size of a source, if possible without reading it."""
    path = Path(options.source)
    if (path / MANIFEST_NAME).is_file():
        manifest = open_store(path).manifest
        counts = (manifest.num_nodes, manifest.num_edges, manifest.num_features, manifest.num_splits)
        return Size(*counts, exact=True, graphs=manifest.num_graphs)
    if is_generated(options) and not is_collection(options):
        return _generated_size(options)
    entry = BY_NAME.get(options.source)
    if entry is not None:
        splits = entry.splits or options.num_splits
        return Size(entry.nodes, 2 * entry.edges, entry.features, splits, exact=True, graphs=entry.graphs)
    name = path.name.removesuffix(".gz")
    if path.is_file() and name.endswith(TEXT_SUFFIXES):
        return _text_size(path, options)
    # The other formats hold complete arrays, which are quick to read.
    with read_source(options) as (graph, _):
        counts = (graph.csr.num_nodes, graph.csr.num_edges, graph.features.shape[1], len(graph.splits))
        return Size(*counts, exact=True, graphs=graph.num_graphs)


def _generated_size(options: SourceOptions) -> Size:
    if options.source == "minesweeper":
        side = options.side
        return Size(side * side, 4 * (side - 1) * (2 * side - 1), 7, options.num_splits, exact=True)
    nodes = options.num_nodes or DEFAULT_NODES
    return Size(nodes, round(4.67 * nodes), 16, 1, exact=False)


def _text_size(path: Path, options: SourceOptions) -> Size:
    text = TextFormat.detect(path)
    with path.open("rb") as file:
        sample = file.read(_SAMPLE_BYTES)
    lines = sample.splitlines()[text.skip + text.header :] or [b""]
    scale = 4 if path.suffix == ".gz" else 1
    rows = max(1, round(scale * path.stat().st_size / (1 + sum(map(len, lines)) / len(lines))))
    # A fifth as many nodes as edges is a guess that is on the safe side for most graphs.
    nodes = options.num_nodes or max(1, rows // 5)
    entries = rows if options.directed is True else 2 * rows
    return Size(nodes, entries, 0, options.num_splits, exact=False, text_bytes=scale * path.stat().st_size)


def _plan_ingest(size: Size) -> StagePlan:
    features = 4 * size.nodes * size.features
    disk = 8 * size.nodes + 4 * size.entries + features + 8 * size.nodes + size.nodes * size.splits
    edges = _SORT_BYTES_PER_EDGE * min(size.entries, MEMORY_EDGES)
    seconds = 2 * size.text_bytes / _TEXT_BYTES_PER_SECOND + disk / _WRITE_BYTES_PER_SECOND
    return StagePlan("ingest", _PROCESS_BYTES + edges + 3 * features + 32 * size.nodes, disk, seconds)


def _plan_positions(size: Size, config: Config, cores: int, budget_seconds: float) -> StagePlan:
    settings = config.positions
    levels = settings.truncate if settings.depth == "truncated" else 4 * settings.truncate
    batch = levels * (size.entries + 2 * size.nodes) * NANOSECONDS_PER_VISIT * 1e-9
    batches = -(-size.nodes // MAX_SOURCES)
    if settings.landmarks is not None:
        batches, note = -(-settings.landmarks // MAX_SOURCES), f"{settings.landmarks:,} landmarks"
    elif batches * batch > budget_seconds:
        batches, note = -(-LANDMARKS // MAX_SOURCES), f"{LANDMARKS} landmarks, exact is over the budget"
    else:
        note = f"exact, {batches:,} batches"
    sums = 4 * size.nodes * settings.truncate
    worker = _PROCESS_BYTES + (3 * BYTES_IN_ROW + 18) * size.nodes + sums
    driver = _PROCESS_BYTES + 24 * size.entries + 10 * sums + 8 * size.nodes * (8 + COLUMN_LANDMARKS)
    disk = size.nodes * (8 + 4 * (settings.truncate + 1) + 4 * (1 + settings.truncate + COLUMN_LANDMARKS))
    seconds = _RAY_START_SECONDS + 2 * batches * batch / min(cores, batches)
    return StagePlan("positions", max(worker, driver), disk, seconds, note)


def _plan_arrangement(size: Size, config: Config) -> StagePlan:
    disk = size.nodes * (8 + 4 * (1 + config.positions.truncate))
    note = f"{size.graphs:,} graphs"
    return StagePlan(
        "arrangement", _PROCESS_BYTES + 2 * disk, disk, _ARRANGE_SECONDS_PER_NODE * size.nodes, note
    )


def _plan_orders(size: Size, config: Config) -> StagePlan:
    heads = config.model.heads
    memory = _PROCESS_BYTES + 32 * size.entries + size.nodes * (60 + 12 * heads)
    seconds = _ORDER_SECONDS_PER_ENTRY * (size.entries + size.nodes) * heads / 2
    return StagePlan("orders", memory, 8 * size.nodes * heads, seconds, config.positions.order)


def _plan_segments(size: Size, config: Config) -> StagePlan:
    heads, length = config.model.heads, config.segments.length
    words = -(-length * length // 64)
    disk = size.nodes * (12 + heads * (4 * length + 8 * words)) + 4 * size.nodes * heads
    memory = _PROCESS_BYTES + size.nodes * heads * (8 * words + 8) + 8 * size.entries
    seconds = _SEGMENT_SECONDS_PER_RECORD * size.nodes * heads + disk / _WRITE_BYTES_PER_SECOND
    return StagePlan("segments", memory, disk, seconds, f"{heads} heads of length {length}")


def _local_place(config: Config) -> Path:
    store = config.data.store
    return config.storage.cache.expanduser() if isinstance(store, Uri) else store or config.output


def _find_problems(memory: int, disk: int, place: Path) -> list[str]:
    import psutil

    problems = []
    available = psutil.virtual_memory().available
    if memory > available:
        problems.append(f"{memory / 2**30:.1f} GiB of memory needed, {available / 2**30:.1f} available")
    free = shutil.disk_usage(existing_parent(place)).free
    if disk > free:
        problems.append(f"{disk / 2**30:.1f} GiB of disk needed, {free / 2**30:.1f} free")
    return problems
