"""What an epoch of cheap opponents costs, against a plain torch loop on the same rows and each other."""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import BaseModel

from pipeline.config.loading import Config, load_config
from pipeline.features.selection import write_blocks
from pipeline.ingest.generators import power_law
from pipeline.models.networks import Inputs, build_model
from pipeline.models.opponents import RowBatch
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.presets import default_preset
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.needs import resolve_needs
from pipeline.training.opponent_inputs import read_rows
from pipeline.training.optimisation import make_optimiser
from pipeline.training.results import read_epochs

_NUM_NODES = 400_000
_TRAIN_SHARE = 0.08
_NUM_FEATURES = 64


class _Synthetic(BaseModel):
    """What determines the graph."""

    nodes: int


@dataclass(frozen=True)
class BaselineCost:
    """Medians of interleaved rounds on one thread; epochs without validation."""

    nodes: int
    train_rows: int
    mlp_rows_per_second: float
    mlp_vs_plain_torch: float
    """Seconds per epoch over those of a plain torch loop on the same rows."""
    sign_rows_per_second: float
    sign_vs_plain_torch: float
    sgc_epoch_vs_first: float
    """Seconds of a later epoch over those of the first, which has to propagate."""
    sgc_epoch_vs_mlp: float
    """Seconds of a later epoch over those of an epoch of `mlp`."""


@dataclass(frozen=True)
class _Epochs:
    """Seconds of the epochs of one training: reading the graph and the first epoch, and later epochs."""

    first: float
    later: float


def run(nodes: int = _NUM_NODES, *, epochs: int = 6, rounds: int = 3) -> BaselineCost:
    """Measure.

    Args:
        nodes: Nodes of the power-law graph.
        epochs: Epochs per training.
        rounds: Trainings of each model, alternating.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="cocn-") as temporary:
            store = _make_store(Path(temporary) / "store", nodes)
            return _measure(store, Path(temporary), epochs, rounds)
    finally:
        torch.set_num_threads(threads)


def _measure(store: GraphStore, directory: Path, epochs: int, rounds: int) -> BaselineCost:
    """Train each model and its plain counterpart alternately."""
    ours: dict[str, list[_Epochs]] = {"mlp": [], "sgc": [], "sign": []}
    plain: dict[str, list[float]] = {"mlp": [], "sign": []}
    for number in range(rounds):
        for name in ours:
            config = _configure(name, directory, epochs)
            write_blocks(store, resolve_needs(config, store).all_blocks)
            ours[name].append(_time_training(store, config, directory / f"{name}-{number}"))
            if name in plain:
                plain[name].append(_time_plain_loop(store, config))
    rows = int((store.split(0) == 0).sum())
    later = {name: statistics.median(each.later for each in measured) for name, measured in ours.items()}
    return BaselineCost(
        nodes=store.num_nodes,
        train_rows=rows,
        mlp_rows_per_second=rows / later["mlp"],
        mlp_vs_plain_torch=_ratio([each.later for each in ours["mlp"]], plain["mlp"]),
        sign_rows_per_second=rows / later["sign"],
        sign_vs_plain_torch=_ratio([each.later for each in ours["sign"]], plain["sign"]),
        sgc_epoch_vs_first=later["sgc"] / statistics.median(each.first for each in ours["sgc"]),
        sgc_epoch_vs_mlp=later["sgc"] / later["mlp"],
    )


def _make_store(path: Path, nodes: int) -> GraphStore:
    """A power-law graph with few training nodes."""
    graph = power_law(nodes, num_features=_NUM_FEATURES)
    part = np.random.default_rng(0).random(nodes)
    split = np.where(part < _TRAIN_SHARE, 0, np.where(part < 2 * _TRAIN_SHARE, 1, 2)).astype(np.int8)
    return create_store(path, replace(graph, splits=split[None]), _Synthetic(nodes=nodes))


def _configure(name: str, output: Path, epochs: int) -> Config:
    """A model with its settings for any graph, validated once at the end."""
    fixed = {"output": output, "train.epochs": epochs, "train.validate_every": epochs, "train.patience": 0}
    config = load_config(None, fixed, preset=default_preset(name))
    return config.model_copy(update={"model": config.model.model_copy(update={"name": name})})


def _time_training(store: GraphStore, config: Config, directory: Path) -> _Epochs:
    """Train with the loop that all models use."""
    directory.mkdir()
    train_worker(TrainJob(config, store.place, directory))
    records = read_epochs(directory)
    rows = int((store.split(0) == 0).sum())
    # Throughput excludes validation, and the first line includes the time to open the graph.
    later = statistics.median(rows / record.rows_per_second for record in records[1:])
    return _Epochs(first=records[0].seconds, later=later)


def _time_plain_loop(store: GraphStore, config: Config) -> float:
    """Seconds per epoch of the loop that anybody would write: a permutation, slices, steps of Adam."""
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(store, config))
    if not isinstance(model, RowOpponent):
        raise TypeError(f"Expected a model that reads rows (got {config.model.name})")
    train = np.flatnonzero(store.split(0) == 0)
    rows = read_rows(store, model).take(train, torch.device("cpu"))
    labels = torch.from_numpy(store.labels()[train].astype(np.int64))
    optimiser = make_optimiser(model.parameters(), config.train)
    times = []
    for _ in range(config.train.epochs):
        start = time.perf_counter()
        for chosen in torch.split(torch.randperm(len(train)), config.train.batch_size):
            batch = RowBatch(tuple(block[chosen] for block in rows.blocks))
            loss = F.cross_entropy(model(batch), labels[chosen])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def _ratio(ours: Sequence[float], plain: Sequence[float]) -> float:
    """Median over rounds; the two measurements of a round ran back to back, under the same load."""
    return statistics.median(mine / theirs for mine, theirs in zip(ours, plain, strict=True))
