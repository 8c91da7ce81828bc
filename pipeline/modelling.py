"""From configuration to network: which member of the family, and which of its inputs come from the store."""

from dataclasses import dataclass
from typing import Any

import cocn
from cocn.positions import Propagation
from pipeline.baselines import BASELINES, Baseline
from pipeline.sections import ModelConfig, SegmentConfig
from pipeline.store import GraphStore

FAMILY: dict[str, type[cocn.CoCN]] = {
    "vanilla": cocn.VanillaCoCN,
    "expanded": cocn.ExpandedCoCN,
    "sparse": cocn.SparseCoCN,
    "segment": cocn.SegmentCoCN,
}
MODELS = (*FAMILY, *BASELINES)
Network = cocn.CoCN | Baseline


@dataclass(frozen=True)
class Inputs:
    """What a model reads of a store, and what it answers.

    Attributes:
        num_features: columns of x, propagated ones not counted.
        num_classes: number of classes.
        num_position_columns: columns of the store's structural positions.
        num_nodes: nodes of the graph; only LINKX depends on it.
    """

    num_features: int
    num_classes: int
    num_position_columns: int
    num_nodes: int = 0

    @classmethod
    def of(cls, store: GraphStore) -> "Inputs":
        columns = len(store.position_columns) if store.has("positions") else 0
        return cls(store.manifest.num_features, store.manifest.num_classes, columns, store.num_nodes)


def streams(model: ModelConfig) -> bool:
    """Whether the model trains on mini-batches of segments."""
    return model.name == "segment"


def position_source(model: ModelConfig) -> str:
    """What orders the nodes, `auto` resolved."""
    if model.positions == "auto":
        return "fixed" if streams(model) else "explicit"
    return model.positions


def propagation(model: ModelConfig) -> Propagation:
    """Where positions are smoothed, `auto` resolved."""
    if model.propagation == "auto":
        return "before" if streams(model) else "after"
    return model.propagation


def position_channels(model: ModelConfig, inputs: Inputs) -> int | None:
    """Columns that positions are regressed from; None where a model decides by itself."""
    source = position_source(model)
    if source == "implicit":
        return inputs.num_position_columns
    return inputs.num_features if source == "explicit" and streams(model) else None


def build_model(model: ModelConfig, segments: SegmentConfig, inputs: Inputs) -> Network:
    """The network that a configuration describes, with fresh parameters."""
    if model.name in BASELINES:
        return Baseline(model, inputs.num_nodes, inputs.num_features, inputs.num_classes)
    settings: dict[str, Any] = {
        "num_heads": model.heads,
        "kernel_size": model.inception_kernels or model.kernel_size,
        "smoothness": model.smoothness,
        "unit_layers": model.unit_layers,
        "pool_layers": model.pool_layers,
        "final_layer": model.final_layer,
        "residual": model.residual and model.name != "vanilla",
        "dropout": model.dropout,
        "position_source": position_source(model),
        "position_channels": position_channels(model, inputs),
        "propagation": propagation(model),
        "node_features": model.node_features,
        "structure_features": model.structure_features,
        "self_loops": model.self_loops,
    }
    if model.ranking != "auto":
        settings["rank_gradient"] = model.ranking
    if model.name != "sparse":
        settings["tau"] = model.tau
    num_features = inputs.num_features
    if streams(model):
        # Segments read propagated features from the store, beside the plain ones.
        num_features *= 1 + model.propagated_features
        settings["segment_length"] = segments.length
    else:
        settings["propagated_features"] = model.propagated_features
    return FAMILY[model.name](num_features, model.hidden_channels, inputs.num_classes, **settings)
