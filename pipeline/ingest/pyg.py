"""PyG graphs in and out: :func:`from_pyg` writes a store, :func:`to_pyg` reads one."""

import time
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config.settings import SourceOptions
from pipeline.ingest.pyg_graphs import MASKS, PyGGraphs, read_graphs
from pipeline.ingest.stage import IngestParameters, arrange_tensors
from pipeline.store.access import create_store, find_store, open_store
from pipeline.store.cleaning import describe, edge_sources
from pipeline.store.graph_store import INGEST, GraphStore
from pipeline.store.manifest import StageTiming
from pipeline.store.splits import TEST, TRAIN, VALIDATION


def from_pyg(
    data: PyGGraphs,
    store: Path | str,
    *,
    name: str | None = None,
    target: str | None = None,
    directed: bool = False,
    num_splits: int = 10,
    train_share: float = 0.5,
    validation_share: float = 0.25,
    seed: int = 0,
) -> GraphStore:
    """Write PyG graphs as a store that `cocn train --store` accepts.

    One graph gives a store for node prediction; several give a collection for graph classification. Masks
    become splits, `edge_weight` or `edge_attr` become edge values. Integer labels `y` are classes; several
    columns of 0 and 1 are multi-label targets and other numbers regression targets, both NaN where unknown. A
    `HeteroData` is flattened: the types of nodes and edges become features. A store of the same graph at the
    same place is kept.

    Args:
        data: A `Data`, a `HeteroData`, a list of `Data` or a dataset.
        store: Directory of the store.
        name: Name of the graph; by default that of the dataset's class, or of the store's directory.
        target: The node type whose labels count, for a `HeteroData` with several.
        directed: Keep the direction of the edges.
        num_splits: Random splits, or folds of a collection, where there are no masks.
        train_share: Share of training nodes in random splits.
        validation_share: Share of validation nodes in random splits.
        seed: Seed of random splits.

    Raises:
        UserError: If the graph is invalid, or a different one is at `store`; nothing is then left behind.
    """
    start = time.monotonic()
    place = Path(store)
    called = name or _name_of(data, Path(store))
    options = SourceOptions(
        source=called,
        seed=seed,
        directed=directed,
        num_splits=num_splits,
        train_share=train_share,
        validation_share=validation_share,
    )
    tensors = read_graphs(data, called, target)
    parameters = IngestParameters(
        source=called,
        options=options.model_dump(
            mode="json", include={"seed", "directed", "num_splits", "train_share", "validation_share"}
        )
        | {"target": target},
        files={"tensors": tensors.digest()},
    )
    found = find_store(place, parameters)
    if found is not None:
        return found
    graph, edges = arrange_tensors(tensors, options)
    made = create_store(place, graph, parameters, describe(graph, edges))
    made.record_timing(INGEST, StageTiming.since(start))
    return made


def to_pyg(store: GraphStore | Path | str, split: int | None = None) -> Any:
    """A store as a PyG `Data`, or as a list of them for a collection.

    Args:
        store: The store, or its directory.
        split: The split that masks show, [n]; by default all of them side by side, [n, s].

    Returns:
        `Data` with `x`, `edge_index`, `y`, masks, `edge_attr`, `node_id` and `r_A`, as far as the store has
        them; `r_A` gives `cocn.SegmentLoader` the store's own segments. The graphs of a collection have `y`
        and, in `split`, the numbers of their parts (0 train, 1 validation, 2 test).
    """
    opened = store if isinstance(store, GraphStore) else open_store(Path(store))
    data = _whole(opened)
    chosen = range(opened.num_splits) if split is None else [split]
    parts = np.stack([opened.split(number) for number in chosen], axis=1) if len(chosen) else None
    if opened.is_collection:
        return _cut(opened, data, parts)
    import torch

    if parts is not None:
        for mask, code in zip(MASKS, (TRAIN, VALIDATION, TEST), strict=True):
            values = torch.from_numpy(parts == code)
            data[mask] = values[:, 0] if split is not None or values.size(1) == 1 else values
    return data


def _whole(store: GraphStore) -> Any:
    """Everything except splits, as one graph."""
    import torch
    from torch_geometric.data import Data

    csr, values, ids = store.csr(), store.edge_values(), store.ids()
    index = np.stack([edge_sources(csr), csr.indices]).astype(np.int64)
    data = Data(edge_index=torch.from_numpy(index), num_nodes=store.num_nodes)
    if store.manifest.num_features:
        data.x = torch.from_numpy(np.array(store.features()))
    targets = store.targets()
    data.y = torch.from_numpy(np.array(store.labels() if targets is None else targets))
    if values is not None:
        data.edge_attr = torch.from_numpy(np.array(values))
    if store.has("positions"):
        data.r_A = torch.from_numpy(np.array(store.approximate_positions()))
    if ids is not None:
        data.node_id = ids.to_pylist()
    return data


def _cut(store: GraphStore, whole: Any, parts: Any) -> list[Any]:
    import torch
    from torch_geometric.data import Data

    bounds = store.graph_indptr()
    entries = store.csr().indptr[bounds]
    graphs = []
    for number in range(len(bounds) - 1):
        nodes, edges = (slice(int(b[number]), int(b[number + 1])) for b in (bounds, entries))
        data = Data(edge_index=whole.edge_index[:, edges] - nodes.start, num_nodes=nodes.stop - nodes.start)
        data.y = whole.y[number : number + 1]
        if "x" in whole:
            data.x = whole.x[nodes]
        if "edge_attr" in whole:
            data.edge_attr = whole.edge_attr[edges]
        if parts is not None:
            data.split = torch.from_numpy(parts[number])
        graphs.append(data)
    return graphs


def _name_of(data: PyGGraphs, store: Path) -> str:
    own = getattr(data, "name", None)
    return own.lower() if isinstance(own, str) and own else store.name or "graph"
