"""`cocn preprocess`: from a source to a store with positions, orders and segments, each stage timed."""

from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import Config
from pipeline.config.settings import SourceOptions
from pipeline.engine.session import ray_session
from pipeline.features.arrangement import write_arrangement
from pipeline.features.propagation import propagate_features
from pipeline.features.selection import is_private, write_blocks
from pipeline.ingest.stage import Ingested, describe_source, ingest, is_collection, options_from, short_name
from pipeline.models.recipes import with_model
from pipeline.orders.stage import OrderParameters, OrderSummary, write_orders
from pipeline.positions.stage import (
    DEFAULT_BUDGET_SECONDS,
    Choice,
    PositionParameters,
    resolve_parameters,
    write_positions,
)
from pipeline.segments.stage import stage_name, write_segments
from pipeline.segments.windows import check_length
from pipeline.storage.files import text_sha256
from pipeline.storage.object_store import Remote, resolve
from pipeline.store.access import has_manifest, open_store
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import StageTiming
from pipeline.training.hidden_links import write_links
from pipeline.training.needs import Needs, resolve_needs
from pipeline.training.preflight import (
    check_counts,
    check_graph,
    check_parameters,
    check_segments,
    check_source,
    may_need_orders,
    require_source,
)

STORES = "stores"
Say = Callable[[str], None]


@dataclass(frozen=True)
class StageTime:
    """One stage as it ran now, or in an earlier run."""

    name: str
    seconds: float
    peak_memory_bytes: int
    done_before: bool


@dataclass(frozen=True)
class Prepared:
    """What `cocn preprocess` produced."""

    store: Path | Remote
    digest: str
    num_nodes: int
    num_edges: int
    positions: str
    """Exact profiles or landmarks, and why."""
    coverage: float | None
    """Share of edges that are within a segment of at least one head; None for a collection."""
    stages: tuple[StageTime, ...]
    num_graphs: int = 1


def prepare(
    config: Config,
    options: SourceOptions,
    *,
    segments: bool = True,
    replace: bool = False,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
    say: Say = lambda line: None,
) -> Prepared:
    """Run every stage that is not yet done.

    Args:
        config: The configuration; only the store and the split of `data` are read here.
        options: The source.
        segments: Also cut segments.
        replace: Replace stages that were run with other parameters instead of refusing.
        budget_seconds: Core-seconds that exact profiles may take.
        say: Called with what was decided and how long stages took.
    """
    place = resolve(config.data.store or default_store(config.output, options), config.storage)
    length = None if is_collection(options) else config.segments.length
    ingested = _ingest_checked(options, place, (config.data.split,) if segments else (), length)
    store = ingested.store
    times = [_time_of(store, "ingest", not ingested.fresh)]
    say(_line(times[-1]))
    if store.is_collection:
        return _prepare_collection(store, config, replace, times, say)
    choice, more = _run_stages(
        store, config, segments=segments, replace=replace, budget_seconds=budget_seconds, say=say
    )
    return _describe(store, choice, (*times, *more))


def _run_stages(
    store: GraphStore,
    config: Config,
    *,
    segments: bool = True,
    replace: bool = False,
    budget_seconds: float = DEFAULT_BUDGET_SECONDS,
    say: Say = lambda line: None,
) -> tuple[Choice, list[StageTime]]:
    """Compute the positions, orders and segments that a store lacks; see :func:`prepare`."""
    parameters, choice = resolve_parameters(store.csr(), config.positions, budget_seconds=budget_seconds)
    say(f"positions: {choice.reason}")
    settings, times = config.segments, list[StageTime]()
    orders = OrderParameters(
        family=config.positions.order, heads=config.model.heads, length=settings.length, seed=settings.seed
    )
    stages: list[tuple[str, Callable[[], bool]]] = [
        ("positions", lambda: write_positions(store, parameters, reason=choice.reason, replace=replace)),
        ("orders", lambda: write_orders(store, orders, replace=replace)),
    ]
    if segments:
        stages.append(_segment_stage(store, config, replace))
    _check_stages(store, config, parameters, orders, segments=segments, replace=replace)
    # One Ray for all stages instead of one each; none if nothing is left to do.
    missing = any(not store.has(name) for name, _ in stages)
    with ray_session() if missing else nullcontext():
        for name, run in stages:
            ran = run()
            times.append(_time_of(store, name, not ran))
            say(_line(times[-1]))
    return choice, times


def _ingest_checked(
    options: SourceOptions, place: Path | Remote, splits: Collection[int], length: int | None
) -> Ingested:
    """Ingest a source, unless it lacks a split or is smaller than a segment; then nothing is written."""

    def accept(nodes: int, available: int) -> None:
        check_counts(options.source, splits, length, nodes=nodes, available=available)

    check_source(options, splits, length)
    return ingest(options, place, accept)


def _check_stages(
    store: GraphStore,
    config: Config,
    positions: PositionParameters,
    orders: OrderParameters,
    *,
    segments: bool,
    replace: bool,
) -> None:
    """Refuse before the first stage what a later one would refuse.

    Raises:
        UserError: If a segment is longer than the graph, or a finished stage has other parameters.
    """
    check_length(config.segments.length, store.num_nodes)
    if segments and store.num_splits:
        store.split(config.data.split)
    if replace:
        return
    check_parameters(store, "positions", positions)
    check_parameters(store, "orders", orders)
    if segments:
        check_segments(store, config, (config.data.split,))


def _prepare_collection(
    store: GraphStore, config: Config, replace: bool, times: list[StageTime], say: Say
) -> Prepared:
    """Arrange the graphs; they are too small for segments, and each has its own positions."""
    ran = write_arrangement(store, config.positions.truncate, replace=replace)
    times.append(_time_of(store, "arrangement", not ran))
    say(_line(times[-1]))
    return Prepared(
        store=store.place,
        digest=store.digest,
        num_nodes=store.num_nodes,
        num_edges=store.manifest.num_edges,
        positions="exact, in every graph",
        coverage=None,
        stages=tuple(times),
        num_graphs=store.manifest.num_graphs,
    )


def open_prepared(
    config: Config,
    *,
    models: Collection[str] = (),
    splits: Collection[int] = (),
    say: Say = lambda line: None,
) -> GraphStore:
    """The store of a configuration with every stage that the models read; missing ones are run now.

    Args:
        config: The configuration; a store that it names is used as it is if it exists.
        models: Models that will train; by default the configuration's.
        splits: Splits they train on; by default the configuration's.
        say: Called with what was decided and how long stages took.

    Raises:
        UserError: If no graph is named, or it does not suit the models; nothing has been computed then.
    """
    data = config.data
    chosen = [config.model.model_copy(update={"name": name}) for name in models or (config.model.name,)]
    place = None if data.store is None else resolve(data.store, config.storage)
    if place is not None and has_manifest(place):
        store = open_store(place)
    else:
        require_source(data)
        options = options_from(data)
        ordered = any(may_need_orders(model) for model in chosen)
        length = config.segments.length if ordered else None
        place = place or resolve(default_store(config.output, options), config.storage)
        store = _ingest_checked(options, place, splits or (data.split,), length).store
    configs = [with_model(config, model.name, store) for model in chosen]
    for each in configs:
        check_graph(store, each, splits or (data.split,))
    needs = [resolve_needs(each, store) for each in configs]
    if not store.has("positions") and any(each.precomputed_positions for each in needs):
        _run_stages(store, config, segments=False, say=say)
    for each, needed in zip(configs, needs, strict=True):
        _prepare_model(store, each, needed, splits or (data.split,))
    return store


def _prepare_model(store: GraphStore, config: Config, needs: Needs, splits: Collection[int]) -> None:
    """Run what training needs beyond the graph and its positions.

    Graphs of a collection are arranged, and links hidden; segments read propagated features and, if the order
    is fixed, shards.
    """
    if needs.reading == "graphs":
        write_arrangement(store, config.positions.truncate)
    if needs.blocks:
        write_blocks(store, [block for block in needs.all_blocks if not is_private(block)])
    if needs.propagated_steps and store.manifest.num_features:
        propagate_features(store, needs.propagated_steps, self_loops=config.model.self_loops)
    for split in splits:
        own = config.model_copy(update={"data": config.data.model_copy(update={"split": split})})
        if needs.reading == "links":
            write_links(store, own)
        if needs.blocks:
            write_blocks(store, resolve_needs(own, store).all_blocks)
        if needs.reads_shards:
            write_segments(store, own)


def default_store(output: Path, options: SourceOptions) -> Path:
    """A separate directory for every source and set of options."""
    identity = text_sha256(describe_source(options).model_dump(mode="json"))
    return output / STORES / f"{short_name(options)}-{identity[:8]}"


def _segment_stage(store: GraphStore, config: Config, replace: bool) -> tuple[str, Callable[[], bool]]:
    return stage_name(config.data.split), lambda: write_segments(store, config, replace=replace)


def _time_of(store: GraphStore, name: str, done_before: bool) -> StageTime:
    measured = store.timings().get(name, StageTiming())
    return StageTime(name, measured.seconds, measured.most_memory_bytes, done_before)


def _line(stage: StageTime) -> str:
    if stage.done_before:
        return f"{stage.name}: already done"
    memory = f"{stage.peak_memory_bytes / 2**20:,.0f} MiB per process"
    return f"{stage.name}: {stage.seconds:,.1f} s, at most {memory}"


def _describe(store: GraphStore, choice: Choice, stages: tuple[StageTime, ...]) -> Prepared:
    coverage = store.summary("orders", OrderSummary).coverage
    return Prepared(
        store=store.place,
        digest=store.digest,
        num_nodes=store.num_nodes,
        num_edges=store.manifest.num_edges,
        positions=choice.reason,
        coverage=coverage.union[-1] if coverage.union else 0.0,
        stages=stages,
    )
