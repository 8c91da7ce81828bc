"""Checks that report what is wrong before anything runs or is returned."""

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from pipeline.config.settings import Config, DataConfig, ModelConfig, ResourceConfig, SourceOptions
from pipeline.engine.session import ADDRESS
from pipeline.ingest.stage import DEFAULT_NODES, is_generated
from pipeline.models.networks import FAMILY, Inputs, build_model, position_source, resolve_task, streams
from pipeline.runtime.errors import UserError
from pipeline.runtime.memory import require_memory
from pipeline.segments.stage import segment_parameters, stage_name
from pipeline.segments.windows import check_length
from pipeline.storage.files import require_directory
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import other_parameters
from pipeline.store.splits import rows_of_part

_PARTS = {"train": "training", "val": "validation", "test": "test"}
#: Processes per core beyond which a machine only splits its time.
_WORKERS_PER_CORE = 4
_LEAST_LIMIT = 8
#: Memory per node, with its edges and features, while it is generated.
_GENERATED_NODE_BYTES = 400
#: Copies of the weights in memory: weights, their gradient and the two moments of Adam.
_COPIES_OF_WEIGHTS = 4


def require_source(data: DataConfig) -> None:
    """Refuse a configuration that names no graph: the default one is only for the demo.

    Raises:
        UserError: Naming the options to use.
    """
    if "source" in data.model_fields_set:
        return
    if data.store is not None:
        raise UserError(
            f"Expected '{data.store}' to be a graph store (got nothing there): correct the path, create it "
            f"with `cocn preprocess SOURCE --store {data.store}`, or name a dataset with --data"
        )
    raise UserError(
        "Expected a graph (got none): name a dataset or a file with --data, a store with --store, or set "
        "'data.source' in a file for --config"
    )


def check_places(config: Config) -> None:
    """Refuse an output directory or a store that cannot be written to.

    Raises:
        UserError: Saying what is in the way.
    """
    require_directory(config.output, "output")
    if isinstance(config.data.store, Path):
        require_directory(config.data.store, "data.store")


def check_settings(configs: Iterable[Config]) -> None:
    """Refuse networks that cannot be built, and workers that are not available.

    Raises:
        UserError: Saying which setting is to blame.
    """
    for config in configs:
        check_resources(config.resources)
        _check_network(config)


def check_resources(resources: ResourceConfig) -> None:
    """Refuse workers and GPUs that this machine does not have; a cluster's are only known to the cluster.

    Raises:
        UserError: Saying what is available.
    """
    if os.environ.get(ADDRESS):
        return
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = resources.gpus_per_worker * resources.least_workers
    if wanted > gpus:
        raise UserError(
            f"Expected 'resources.gpus_per_worker' times 'resources.workers' to be at most {gpus}, the GPUs "
            f"of this machine (got {wanted:g}): request fewer, or name a cluster with {ADDRESS}"
        )
    cores = os.cpu_count() or 1
    limit = max(_LEAST_LIMIT, _WORKERS_PER_CORE * cores)
    if resources.least_workers > limit:
        raise UserError(
            f"Expected 'resources.workers' to be at most {limit} on this machine with {cores} cores "
            f"(got {resources.workers}): request fewer, or name a cluster with {ADDRESS}"
        )


def _check_network(config: Config) -> None:
    """Refuse settings that no network can have, by building one without allocating its weights.

    Raises:
        UserError: Saying which setting is to blame.
    """
    import torch

    model, length = config.model, config.segments.length
    kernels = model.inception_kernels or (model.kernel_size,)
    if streams(model) and max(kernels) > length:
        raise UserError(
            f"Expected 'model.kernel_size' to be at most {length}, the length of a segment "
            f"(got {max(kernels)}): make it smaller, or segments.length larger"
        )
    with torch.device("meta"):
        try:
            network = build_model(model, config.segments, Inputs(8, 2, 4, num_nodes=16))
        except ValueError as error:
            raise UserError(str(error)) from error
    weights = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    require_memory(_COPIES_OF_WEIGHTS * weights, f"the weights of '{model.name}'", "fewer channels or layers")


def _known_size(options: SourceOptions) -> int | None:
    """Number of nodes of a source, if its options tell; None if only its files do."""
    if not is_generated(options) or options.source == "motifs":
        return None
    return options.side**2 if options.source == "minesweeper" else options.num_nodes or DEFAULT_NODES


def _known_splits(options: SourceOptions) -> int | None:
    """Number of splits of a source, if its options tell; None if only its files do."""
    if not is_generated(options):
        return None
    return 1 if options.source == "power-law" else options.num_splits


def check_source(options: SourceOptions, splits: Collection[int], length: int | None = None) -> None:
    """Refuse, before reading a source, what it is known not to have.

    Args:
        options: The source.
        splits: Splits that will be read.
        length: Nodes in a segment, if segments will be cut.

    Raises:
        UserError: If it has no such split, or too few nodes for a segment.
    """
    size, count = _known_size(options), _known_splits(options)
    if size is not None:
        what = f"a graph of {size:,} generated nodes"
        require_memory(size * _GENERATED_NODE_BYTES, what, "fewer of them")
    check_counts(options.source, splits, length, nodes=size, available=count)


def check_counts(
    name: str, splits: Collection[int], length: int | None, *, nodes: int | None, available: int | None
) -> None:
    """Refuse segments longer than a graph and splits that it does not have; None where unknown.

    Raises:
        UserError: Naming what is available.
    """
    if nodes is not None and length is not None:
        check_length(length, nodes)
    for split in splits:
        if available is not None and split >= max(available, 1):
            raise UserError(
                f"Expected 'data.split' to be below {available}, the number of splits of '{name}' "
                f"(got {split})"
            )


def may_need_orders(model: ModelConfig) -> bool:
    """Whether a model, on any kind of graph, may read precomputed orders of its nodes."""
    return model.name in FAMILY and position_source(model) != "explicit"


def check_graph(store: GraphStore, config: Config, splits: Collection[int]) -> None:
    """Refuse a training that the graph does not support: no labels, an empty part, too few nodes or heads.

    Raises:
        UserError: Saying what is missing.
    """
    model, resources = config.model, config.resources
    task = resolve_task(config, store)
    for split in splits:
        store.split(split)
        if task != "link":
            _check_labels(store, split, config.data.protocol)
    by_heads = model.name in FAMILY and not (streams(model) or store.is_collection)
    if by_heads and resources.most_workers > model.heads:
        raise UserError(
            f"Expected 'resources.workers' to be at most {model.heads}, the heads that '{model.name}' shares "
            f"out (got {resources.workers})"
        )
    if streams(model):
        check_length(config.segments.length, store.num_nodes)
        if position_source(model) == "fixed":
            check_segments(store, config, splits)


def check_segments(store: GraphStore, config: Config, splits: Collection[int]) -> None:
    """Refuse segments other than those that a store already has.

    Raises:
        StoreError: Naming the parameters that differ.
    """
    for split in splits:
        varied = config.model_copy(update={"data": config.data.model_copy(update={"split": split})})
        check_parameters(store, stage_name(split), segment_parameters(store, varied))


def check_parameters(store: GraphStore, stage: str, parameters: BaseModel) -> None:
    """Refuse, before any work, parameters that differ from those of a finished stage.

    Raises:
        StoreError: Naming the parameters that differ.
    """
    old, asked = store.manifest.stages.get(stage), parameters.model_dump(mode="json")
    if old is not None and old.parameters != asked:
        raise other_parameters(store.place, stage, old.parameters, asked)


def _check_labels(store: GraphStore, split: int, protocol: str) -> None:
    """Refuse a split in which a part has no labels.

    Raises:
        UserError: Naming the part.
    """
    if store.manifest.num_classes == 0:
        raise UserError(
            f"Expected labels in '{store.place}' (got none): give them to `cocn preprocess` with --labels, "
            "or predict links with --task link"
        )
    rows, targets = store.split(split), store.targets()
    known = np.asarray(store.labels() >= 0 if targets is None else np.isfinite(targets).any(axis=1))
    for part, word in _PARTS.items():
        if not np.any(known[rows_of_part(rows, part, protocol)]):
            raise UserError(
                f"Expected the {word} part of split {split} in '{store.place}' to have labels (got none): "
                "choose another 'data.split', or ingest the graph with other splits or labels"
            )
