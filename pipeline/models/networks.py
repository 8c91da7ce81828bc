"""From configuration to network: which member of the family, and which of its inputs come from the store."""

from dataclasses import dataclass, replace
from typing import Any, cast

import cocn
from cocn.graphs import STRUCTURAL_LIMIT
from cocn.modern import MixingCoCN, StreamingCoCN
from cocn.positions import Propagation
from pipeline.config.settings import Config, ModelConfig, SegmentConfig
from pipeline.features.arrangement import STAGE as ARRANGEMENT
from pipeline.features.arrangement import ArrangementSummary
from pipeline.features.selection import (
    block_widths,
    graph_blocks,
    hop_blocks,
    is_private,
    streaming_blocks,
    window_block,
)
from pipeline.models.opponents import OPPONENTS, STAND_IN_COLUMNS, Opponent, Sizes, build_opponent
from pipeline.models.tasks import target_scale
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Answer, Task
from pipeline.store.graph_store import GraphStore

FAMILY: dict[str, type[cocn.CoCN]] = {
    "vanilla": cocn.VanillaCoCN,
    "expanded": cocn.ExpandedCoCN,
    "sparse": cocn.SparseCoCN,
    "segment": cocn.SegmentCoCN,
}
MODELS = (*FAMILY, *OPPONENTS)
Network = cocn.CoCN | MixingCoCN | StreamingCoCN | Opponent


@dataclass(frozen=True)
class Inputs:
    """What a model reads of a store, and what it predicts.

    Attributes:
        num_features: columns of x, not counting propagated ones.
        num_classes: number of classes.
        num_position_columns: columns of the store's structural positions.
        num_nodes: nodes of the graph; only LINKX depends on it.
        task: what is predicted for: every node, every graph, or pairs of nodes.
        batched: whether a step reads a batch of a collection's graphs.
        num_edge_features: numbers per edge; 0 for plain edges.
        directed: whether edges have a direction.
        blocks: name and columns of every input block that the model reads.
        window_columns: columns that its windows read per node.
        num_means: kinds of neighbours that it averages over: 1, or 2 for out- and in-neighbours apart.
        answer: what is known of a node; `num_classes` counts labels or values then.
        target_scale: mean and standard deviation of each value.
    """

    num_features: int
    num_classes: int
    num_position_columns: int
    num_nodes: int = 0
    task: Task = "node"
    batched: bool = False
    num_edge_features: int = 0
    blocks: tuple[tuple[str, int], ...] = ()
    window_columns: int = 0
    num_means: int = 1
    directed: bool = False
    answer: Answer = "classes"
    target_scale: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, store: GraphStore, config: Config) -> "Inputs":
        task = resolve_task(config, store)
        if task == "link" and not store.is_collection:
            columns = 1 + config.positions.truncate
        elif store.is_collection:
            columns = store.summary(ARRANGEMENT, ArrangementSummary).columns
        else:
            columns = len(store.position_columns) if store.has("positions") else 0
        return cls(
            num_features=store.manifest.num_features,
            num_classes=0 if task == "link" else store.manifest.num_classes,
            num_position_columns=columns,
            num_nodes=store.num_nodes,
            task=task,
            batched=store.is_collection,
            num_edge_features=store.manifest.num_edge_features,
            directed=store.directed or store.csr().ways is not None,
            answer="classes" if task == "link" else store.manifest.answer,
            target_scale=() if task == "link" else target_scale(store, config.data.split),
            **(_block_sizes(store, config) if reads_blocks(config.model, task) else {}),
        )


def is_modern(model: ModelConfig, task: Task) -> bool:
    """Whether a model follows the modern recipe; see `pipeline.models.recipes` for how `auto` is resolved."""
    return model.recipe == "modern" and model.name in FAMILY and task == "node"


def reads_blocks(model: ModelConfig, task: Task) -> bool:
    """Whether a model reads input blocks of the store: modern ones do, and `sign`."""
    return is_modern(model, task) or (model.name == "sign" and task == "node")


def block_names(store: GraphStore, config: Config) -> tuple[str, ...]:
    """The input blocks that a model reads."""
    if config.model.name == "sign":
        recipe = config.model.opponent
        return hop_blocks(store, config.data.split, recipe.hops, labels=recipe.neighbour_labels)
    choose = streaming_blocks if streams(config.model) else graph_blocks
    return choose(store, config.data.split, labels=config.model.neighbour_labels)


def _block_sizes(store: GraphStore, config: Config) -> dict[str, Any]:
    reads_windows = config.model.windows and config.model.name != "sparse"
    return {
        "blocks": tuple(block_widths(store, block_names(store, config)).items()),
        "num_means": 1 if store.csr().ways is None else 2,
        "window_columns": sum(block_widths(store, [window_block(store)]).values()) if reads_windows else 0,
    }


def resolve_task(config: Config, store: GraphStore) -> Task:
    """The task of a configuration on a store, with `auto` resolved.

    Raises:
        UserError: if the store, or the model, does not support it.
    """
    asked, there = config.data.task, store.manifest.task
    task: Task = there if asked == "auto" else asked
    if task != there and (there, task) != ("node", "link"):
        possible = "node or link" if there == "node" else there
        raise UserError(f"Expected 'data.task' to be {possible} for {store.manifest.name} (got {task})")
    check_model(config.model, task, collection=store.is_collection)
    whole = task == "link" and not store.is_collection
    if whole and position_source(config.model) == "implicit" and store.num_nodes > STRUCTURAL_LIMIT:
        raise UserError(
            "Expected 'model.positions' to be explicit for links of a graph of more than "
            f"{STRUCTURAL_LIMIT:,} nodes (got implicit, and the store's positions reveal the hidden links)"
        )
    if config.data.protocol != "holdout" and task != "graph":
        raise UserError(
            f"Expected 'data.protocol' to be holdout, as cross-validation is for graph tasks "
            f"(got {config.data.protocol} for task {task})"
        )
    return task


def check_model(model: ModelConfig, task: Task, *, collection: bool) -> None:
    """Refuse models that are not meant for a task.

    Raises:
        UserError: saying why.
    """
    source = position_source(model)
    if task != "node" and model.name == "segment":
        raise UserError(
            f"Expected vanilla, expanded, sparse or an opponent for task '{task}' (got segment, whose "
            "windows are mini-batches of the nodes of one large graph)"
        )
    if task != "node" and model.name in FAMILY and source == "fixed":
        raise UserError(
            f"Expected 'model.positions' to be explicit or implicit for task '{task}' (got fixed, an order "
            "of the nodes of one whole graph)"
        )
    if collection and model.name in OPPONENTS and not OPPONENTS[model.name].collections:
        raise UserError(
            f"Expected a model that reads any graph (got {model.name}, which has parameters for each "
            "node of one)"
        )


def streams(model: ModelConfig) -> bool:
    """Whether the model trains on mini-batches of segments."""
    return model.name == "segment"


def position_source(model: ModelConfig) -> str:
    """What orders the nodes, with `auto` resolved; opponents read them in any order."""
    if model.name in OPPONENTS:
        return "explicit"
    if model.positions == "auto":
        return "fixed" if streams(model) else "explicit"
    return model.positions


def propagation(model: ModelConfig) -> Propagation:
    """Where positions are smoothed, with `auto` resolved."""
    if model.propagation == "auto":
        return "before" if streams(model) else "after"
    return model.propagation


def _position_channels(model: ModelConfig, inputs: Inputs) -> int | None:
    """Columns that positions are regressed from; None if a model decides by itself."""
    source = position_source(model)
    if source == "implicit":
        return inputs.num_position_columns
    return inputs.num_features if source == "explicit" and streams(model) else None


def build_model(model: ModelConfig, segments: SegmentConfig, inputs: Inputs) -> Network:
    """The network that a configuration describes, with newly initialised parameters."""
    if is_modern(model, inputs.task):
        return _build_modern(model, segments, inputs)
    if model.name in OPPONENTS:
        return build_opponent(model, _opponent_sizes(model, inputs))
    settings: dict[str, Any] = {
        "task": inputs.task,
        "num_heads": model.heads,
        "kernel_size": model.inception_kernels or model.kernel_size,
        "smoothness": model.smoothness,
        "unit_layers": model.unit_layers,
        "pool_layers": model.pool_layers,
        "final_layer": model.final_layer,
        "residual": model.residual and model.name != "vanilla",
        "dropout": model.dropout,
        "feature_dropout": model.feature_dropout,
        "position_source": position_source(model),
        "position_channels": _position_channels(model, inputs),
        "propagation": propagation(model),
        "node_features": model.node_features,
        "structure_features": model.structure_features,
        "self_loops": model.self_loops,
        "edge_channels": inputs.num_edge_features or 1,
    }
    if model.ranking != "auto":
        settings["rank_gradient"] = model.ranking
    if model.name != "sparse":
        settings["tau"] = model.tau
    num_features = inputs.num_features
    if streams(model):
        # Segments read propagated features from the store, in addition to the plain ones.
        num_features *= 1 + model.propagated_features
        settings["segment_length"] = segments.length
    else:
        settings["propagated_features"] = model.propagated_features
    return FAMILY[model.name](num_features, model.hidden_channels, out_channels(model, inputs), **settings)


def _opponent_sizes(model: ModelConfig, inputs: Inputs) -> Sizes:
    """What determines the shape of an opponent."""
    return Sizes(
        num_features=inputs.num_features or STAND_IN_COLUMNS,
        out_channels=out_channels(model, inputs),
        num_nodes=inputs.num_nodes,
        task=inputs.task,
        directed=inputs.directed,
        stored_blocks=inputs.blocks,
    )


def _build_modern(model: ModelConfig, segments: SegmentConfig, inputs: Inputs) -> Network:
    widths = dict(inputs.blocks)
    if not streams(model):
        return MixingCoCN(
            widths,
            model.hidden_channels,
            inputs.num_classes,
            layers=model.mixing_blocks,
            ego_layers=model.ego_layers,
            num_means=inputs.num_means,
            num_taps=2 * (model.kernel_size - 1) if model.windows and model.name == "sparse" else 0,
            dropout=model.dropout,
            input_dropout=model.feature_dropout,
            private=[block for block in widths if is_private(block)],
            windows=_windows_of(model, segments, inputs) if model.name != "sparse" else None,
        )
    return StreamingCoCN(
        widths,
        cast("cocn.SegmentCoCN | None", _windows_of(model, segments, inputs)),
        model.hidden_channels,
        inputs.num_classes,
        ego_layers=model.ego_layers,
        dropout=model.dropout,
        input_dropout=model.feature_dropout,
    )


def _windows_of(model: ModelConfig, segments: SegmentConfig, inputs: Inputs) -> cocn.CoCN | None:
    """The paper's network, which a modern model adds to its ego path; None without windows."""
    if not model.windows:
        return None
    paper = model.model_copy(update={"recipe": "paper", "propagated_features": 0})
    sizes = replace(inputs, num_features=inputs.window_columns, num_classes=model.hidden_channels)
    return cast(cocn.CoCN, build_model(paper, segments, sizes))


def out_channels(model: ModelConfig, inputs: Inputs) -> int:
    """Number of classes; for links, an embedding of `hidden_channels` as source and one as target."""
    return 2 * model.hidden_channels if inputs.task == "link" else inputs.num_classes
