"""Figures of orders: where edges end up in the permuted adjacency, by features and by structure."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue

import cocn
from pipeline.config.loading import Config, load_config
from pipeline.models.networks import Inputs, build_model
from pipeline.orders.coverage import adjacency_density
from pipeline.orders.sequences import sequence
from pipeline.orders.stage import Family, head_positions
from pipeline.paper.tables import load_tables
from pipeline.presets import load_preset
from pipeline.reproduce.records import Measurement, Records, Source
from pipeline.segments.adjacency_plots import MAX_BINS
from pipeline.store.arrays import CSR
from pipeline.store.cleaning import edge_sources
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.runs import start_parent
from pipeline.training.checkpoint import load_weights
from pipeline.training.inputs import read_graph
from pipeline.training.launch import train
from pipeline.training.prepare import open_prepared

EXPLICIT = "order-explicit"
IMPLICIT = "order-implicit"
#: Epochs for which positions are learned; the orders settle long before.
_EPOCHS = 30
_BAND = 0.1
_FAMILIES: tuple[Family, ...] = ("lappe", "rwpe", "window")
Ranks = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Order:
    """An order of the nodes, for a panel of the figure."""

    dataset: str
    title: str
    density: NDArray[np.int64]
    num_nodes: int


def measure_order(rank: Ranks, csr: CSR) -> dict[str, float]:
    """How near the diagonal an order brings the edges; for random orders n/3, with 19 % within n/10."""
    distance = np.abs(rank[edge_sources(csr)].astype(np.int64) - rank[csr.indices])
    return {
        "mean_distance": float(distance.mean() / csr.num_nodes),
        "near_diagonal": float((distance < _BAND * csr.num_nodes).mean()),
    }


def measure_likeness(rank: Ranks, features: NDArray[np.float32]) -> float:
    """Mean cosine of the features of adjacent nodes in the order."""
    rows = features[np.argsort(rank, kind="stable")].astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-12)
    return float((rows * np.roll(rows, -1, axis=0)).sum(1).mean())


def _structural_orders(store: GraphStore) -> Iterator[tuple[str, Ranks]]:
    """Ours (positions), the paper's competitors, and the first order of the default family."""
    csr = store.undirected_csr()
    yield "positions", sequence(store.approximate_positions()[:, None], csr).rank[0]
    for family in _FAMILIES:
        yield family, sequence(head_positions(store, 2, family=family)[:, :1], csr).rank[0]


def run_implicit(
    records: Records, command: str, base: Mapping[str, object], datasets: Sequence[str]
) -> Iterator[tuple[Measurement, Order]]:
    """Orders from structure alone."""
    for name in datasets:
        config = load_config(None, {"data.source": name, "model.positions": "implicit", **base})
        store = open_prepared(config, models=["expanded"])
        start = time.perf_counter()
        for family, rank in _structural_orders(store):
            values = measure_order(rank, store.undirected_csr())
            yield _keep(
                records, IMPLICIT, {"dataset": name, "order": family}, values, start, command, rank, store
            )
            start = time.perf_counter()  # the next order is computed when the loop asks for it


def run_explicit(
    records: Records, command: str, base: Mapping[str, object], datasets: Sequence[str]
) -> Iterator[tuple[Measurement, Order]]:
    """Orders from features, learned with the rest of the network, by smoothness t."""
    table = load_tables()[EXPLICIT]
    for name in datasets:
        for smoothness in table.settings["smoothness"]:
            start = time.perf_counter()
            settings = {"model.smoothness": smoothness, "model.tau": table.settings["tau"][0]}
            preset = load_preset(name, "vanilla", quick=True)
            limits = {"train.epochs": _EPOCHS, "train.patience": 0}
            config = load_config(None, {**preset, **settings, **limits, **base})
            store = open_prepared(config, models=["vanilla"])
            rank = _learned_order(config, store)
            values = measure_order(rank, store.undirected_csr())
            values["likeness_of_neighbours"] = measure_likeness(rank, store.features())
            case: dict[str, JsonValue] = {"dataset": name, "smoothness": smoothness}
            yield _keep(records, EXPLICIT, case, values, start, command, rank, store)


def _learned_order(config: Config, store: GraphStore) -> Ranks:
    """Ranks of the first head after training."""
    with start_parent("reproduce", config) as parent:
        result = train(config, store, parent, variant=f"t={config.model.smoothness}")
    model = build_model(config.model, config.segments, Inputs.of(store, config))
    load_weights(result.checkpoint, model)
    if not isinstance(model, cocn.CoCN):
        raise TypeError(f"Expected a model with heads (got {type(model).__name__})")
    graph = read_graph(store, config)
    with torch.inference_mode():
        ranks = model.eval().rank_nodes(graph, slice(0, 1)).rank_BHN[0, 0]
    found = np.empty(store.num_nodes, dtype=np.int32)
    found[graph.arrangement.numpy()] = ranks.numpy()
    return found


def _keep(
    records: Records,
    study: str,
    case: Mapping[str, JsonValue],
    values: Mapping[str, float],
    start: float,
    command: str,
    rank: Ranks,
    store: GraphStore,
) -> tuple[Measurement, Order]:
    measured = Measurement(
        study=study,
        case=case,
        values=values,
        seconds=round(time.perf_counter() - start, 2),
        source=Source.here(command),
    )
    records.add(measured)
    title = " ".join(str(value) for value in case.values()) + f" · {values['near_diagonal']:.0%}"
    bins = min(MAX_BINS, store.num_nodes)
    return measured, Order(
        str(case["dataset"]), title, adjacency_density(rank, store.undirected_csr(), bins), store.num_nodes
    )
