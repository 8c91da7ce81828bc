"""Who takes part in a race, and with which settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import Config, load_config
from pipeline.ingest.stage import options_from
from pipeline.models.networks import FAMILY, check_model
from pipeline.models.opponents import OPPONENTS
from pipeline.orders.stage import STAGE as ORDERS
from pipeline.paper.registry import BENCHMARKS_BY_NAME
from pipeline.presets import default_preset, load_preset, presets_of, shared_preset
from pipeline.runtime.errors import UserError
from pipeline.storage.files import text_sha256
from pipeline.store.access import has_manifest
from pipeline.store.arrays import Task
from pipeline.store.graph_store import GraphStore
from pipeline.training.prepare import default_store

#: Our models: where their settings come from on a graph that has none of its own, and up to how many nodes
#: they take part by default.
_OURS: Mapping[str, tuple[str, int]] = {
    "segment": ("segment", 10**12),
    "sparse": ("node-large", 500_000),
    "expanded": ("node-large", 5_000),
    "vanilla": ("node", 1_000),
}


@dataclass(frozen=True)
class Request:
    """The options of `cocn race`.

    Attributes:
        data: name of a dataset, path of a graph, or path of a store.
        models: names; by default all that fit the data.
        splits: how many splits each model is trained on.
        time_budget: seconds for each model, divided among its splits; None if epochs count.
        epochs: epochs of every model; None if time counts.
        quick: smaller settings, for machines without a GPU.
        overrides: further values of the configuration, by dotted key.
    """

    data: str
    models: tuple[str, ...] = ()
    splits: int = 1
    time_budget: float | None = None
    epochs: int | None = None
    quick: bool = True
    overrides: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Entrant:
    """A model that takes part.

    Attributes:
        model: its name.
        config: its settings; split and seed vary.
        ours: whether it belongs to our family.
    """

    model: str
    config: Config

    @property
    def ours(self) -> bool:
        return self.model in FAMILY


def source_of(data: str) -> dict[str, object]:
    """The configuration keys that name a graph: a store if there is one, else a source."""
    if "://" in data:
        return {"data.store": data}
    path = Path(data)
    return {"data.store": path} if path.is_dir() and has_manifest(path) else {"data.source": data}


def choose_models(asked: Sequence[str], store: GraphStore, task: Task) -> tuple[str, ...]:
    """The models that take part: those requested, or all that fit the graph."""
    if asked:
        return tuple(dict.fromkeys(asked))
    # By default these take part only if they have something to read: collections of graphs, or directions.
    directed = store.directed or store.csr().ways is not None
    special = {"gin": store.is_collection, "dirgnn": directed}
    opponents = [name for name in OPPONENTS if special.get(name, True)]
    ours = [name for name, (_, most) in _OURS.items() if store.is_collection or store.num_nodes <= most]
    return tuple(name for name in (*opponents, *ours) if _fits(name, task, store.is_collection))


def _fits(name: str, task: Task, collection: bool) -> bool:
    settings = load_config(None, {"model.name": name}).model
    try:
        check_model(settings, task, collection=collection)
    except UserError:
        return False
    return True


def enter(model: str, request: Request, store: GraphStore) -> Entrant:
    """A model with its settings: those published for the dataset, else those for any graph."""
    config = load_config(None, _overrides(request), preset=_preset(model, request, store))
    config = config.model_copy(update={"model": config.model.model_copy(update={"name": model})})
    if model in FAMILY and not store.is_collection:
        config = _with_store(config, store, given="data.store" in source_of(request.data))
    else:
        config = _at(config, store)
    return Entrant(model, config)


def _overrides(request: Request) -> dict[str, object]:
    shared = None if request.time_budget is None else request.time_budget / request.splits
    # Every model selects its epoch on the validation part, whatever a benchmark's own table does.
    protocol = {**source_of(request.data), "data.protocol": "holdout", "train.time_budget": shared}
    return {**protocol, "train.epochs": request.epochs, **(request.overrides or {})}


def _preset(model: str, request: Request, store: GraphStore) -> dict[str, object]:
    benchmark = BENCHMARKS_BY_NAME.get(request.data)
    if model in FAMILY and not store.is_collection:
        return {}  # Our models run as users find them: their recipe has defaults for any graph.
    if benchmark is not None and (model in OPPONENTS or model in presets_of(request.data)):
        found = load_preset(request.data, model, quick=request.quick)
    elif model in OPPONENTS:
        found = default_preset(model, quick=request.quick)
    else:
        found = shared_preset("graph" if store.is_collection else _OURS[model][0], quick=request.quick)
    if request.epochs is not None:
        found = {**found, "train.patience": 0}
    return found


def _at(config: Config, store: GraphStore) -> Config:
    place = store.place if isinstance(store.place, Path) else config.data.store
    return config.model_copy(update={"data": config.data.model_copy(update={"store": place})})


def _with_store(config: Config, store: GraphStore, *, given: bool) -> Config:
    """A store holds one set of orders: others get their own store or, if one was given, use its orders."""
    if given:
        return _at(_adopt(config, store), store)
    shape = {
        "positions": config.positions.model_dump(mode="json"),
        "segments": config.segments.model_dump(mode="json"),
        "heads": config.model.heads,
        "self_loops": config.model.self_loops,
    }
    place = default_store(config.output, options_from(config.data))
    place = place.with_name(f"{place.name}-{text_sha256(shape)[:8]}")
    return config.model_copy(update={"data": config.data.model_copy(update={"store": place})})


def _adopt(config: Config, store: GraphStore) -> Config:
    stage = store.manifest.stages.get(ORDERS)
    plain = Config()
    found = stage.parameters if stage is not None else {}
    return config.model_copy(
        update={
            "segments": config.segments.model_copy(
                update={"length": found.get("length", plain.segments.length), "seed": found.get("seed", 0)}
            ),
            "positions": config.positions.model_copy(
                update={"order": found.get("family", plain.positions.order)}
            ),
            "model": config.model.model_copy(update={"heads": found.get("heads", plain.model.heads)}),
        }
    )
