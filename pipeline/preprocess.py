"""From a source to a store that models can train on: every stage in the order of the data."""

from collections.abc import Collection
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config import Config
from pipeline.errors import UserError
from pipeline.heads import OrderParameters, write_orders
from pipeline.modelling import position_source
from pipeline.positions import PositionParameters, choose_sources, write_positions
from pipeline.propagate import propagate_features
from pipeline.segments import write_segments
from pipeline.store import GraphStore
from pipeline.synthetic import minesweeper

STORES = "stores"


class GeneratedSource(BaseModel):
    """What decides a generated graph."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    side: int
    seed: int


def preprocess(config: Config, *, models: Collection[str] = (), splits: Collection[int] = ()) -> GraphStore:
    """Run the stages that the models need; those that are done already are kept.

    Args:
        config: the resolved configuration.
        models: models that will train; by default the configuration's.
        splits: splits that segments are written for; by default the configuration's.
    """
    store = open_source(config)
    settings = config.positions
    choice = choose_sources(
        store.csr(),
        truncate=settings.truncate,
        full_depth=settings.depth == "full",
        landmarks=settings.landmarks,
    )
    parameters = PositionParameters(
        truncate=settings.truncate, depth=settings.depth, landmarks=choice.landmarks, seed=settings.seed
    )
    write_positions(store, parameters, reason=choice.reason)
    for name in models or (config.model.name,):
        prepare_model(
            store, config.model_copy(update={"model": config.model.model_copy(update={"name": name})}), splits
        )
    return store


def prepare_model(store: GraphStore, config: Config, splits: Collection[int] = ()) -> None:
    """The stages that only segments need: propagated features and shards."""
    if config.model.name != "segment":
        return
    learned = position_source(config.model) == "explicit"
    steps = max(int(config.model.propagated_features), config.model.smoothness if learned else 0)
    if steps and store.manifest.num_features:
        propagate_features(store, steps, self_loops=config.model.self_loops)
    if position_source(config.model) == "fixed":
        settings = config.segments
        family = config.positions.order
        orders = OrderParameters(
            family=family, heads=settings.heads, length=settings.length, seed=settings.seed
        )
        write_orders(store, orders)
        for split in splits or (config.data.split,):
            data = config.data.model_copy(update={"split": split})
            write_segments(store, config.model_copy(update={"data": data}))


def open_source(config: Config) -> GraphStore:
    """The store of the configuration, ingested if it is not there yet."""
    data = config.data
    if data.source != "minesweeper":
        raise UserError(f"Expected 'data.source' to be minesweeper (got '{data.source}')")
    parameters = GeneratedSource(source=data.source, side=data.side, seed=data.seed)
    path = data.store or default_store(config)
    found = GraphStore.find(path, parameters)
    return found or GraphStore.create(path, minesweeper(data.side, seed=data.seed), parameters)


def default_store(config: Config) -> Path:
    """Directory of the store where none is named."""
    data = config.data
    return config.output / STORES / f"{data.source}-{data.side}-{data.seed}"
