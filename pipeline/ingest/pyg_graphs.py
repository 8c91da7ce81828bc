"""The content of PyG graphs as arrays: `Data`, `HeteroData`, lists and datasets of them, and .pt files."""

import hashlib
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.checks import RawGraph, check_edge_values, check_targets, make_raw
from pipeline.ingest.graph_collections import Graphs
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Answer
from pipeline.store.splits import splits_from_masks

#: PyG graphs: a `Data`, a `HeteroData`, or a sequence of them such as a dataset.
PyGGraphs = Any
MASKS = ("train_mask", "val_mask", "test_mask")


@dataclass(frozen=True)
class GraphTensors:
    """The arrays of one graph, or of a collection as a disjoint union; None for those that are absent.

    Shapes:
        edges: [2, m].
        features: [n, d].
        labels: one row per node, or one per graph of a collection.
        masks: [3, n] or [3, n, s], for training, validation and test.
        edge_values: [m] or [m, e].
        sizes: [g] nodes of each graph of a collection; None for one graph.
    """

    num_nodes: int
    edges: NDArray[Any]
    features: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    masks: NDArray[Any] | None = None
    edge_values: NDArray[Any] | None = None
    sizes: NDArray[np.int64] | None = None

    def digest(self) -> str:
        """SHA-256 of all of it."""
        found = hashlib.sha256(str(self.num_nodes).encode())
        for name in ("edges", "features", "labels", "masks", "edge_values", "sizes"):
            values = getattr(self, name)
            if values is not None:
                found.update(f"{name} {values.dtype} {values.shape}".encode())
                found.update(np.ascontiguousarray(values).tobytes())
        return found.hexdigest()


def read_pt(path: Path) -> PyGGraphs:
    """Graphs from a file written by `torch.save`, without running any code that the file may contain.

    It may hold a `Data` or `HeteroData`, a list of them, or what `InMemoryDataset` saves.

    Raises:
        UserError: If the file is damaged, or holds anything that is not plain tensors and PyG's classes.
    """
    import torch
    import torch_geometric.data as pyg
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

    storages = [BaseStorage, EdgeStorage, GlobalStorage, NodeStorage]
    allowed = [pyg.Data, pyg.HeteroData, DataEdgeAttr, DataTensorAttr, *storages]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that turn out not to be torch's
            content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = str(error).partition("Unsupported global: GLOBAL ")[2].split(" ")[0]
        reason = f"the class '{named}'" if named else "a file that torch cannot read without running code"
        raise UserError(
            f"Expected '{path}' to hold tensors and PyG's own graphs only (got {reason}): "
            "torch.save a Data, a HeteroData or a list of them"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"Expected '{path}' to be a complete file of torch.save (got {line})") from error
    return _unpack(path, content)


def _unpack(path: Path, content: Any) -> PyGGraphs:
    """The graphs in a file's content: graphs as they are, or the parts that `InMemoryDataset` saves."""
    from torch_geometric.data import Data, HeteroData
    from torch_geometric.data.separate import separate

    if isinstance(content, dict):
        content = Data.from_dict(content)
    if isinstance(content, Data | HeteroData):
        return content
    if isinstance(content, tuple) and len(content) in (2, 3) and not isinstance(content[1], Data):
        store, slices = content[0], content[1]
        whole = Data.from_dict(store) if isinstance(store, dict) else store
        if isinstance(whole, Data) and slices is None:
            return whole
        if isinstance(whole, Data) and isinstance(slices, dict):
            count = len(next(iter(slices.values()))) - 1
            return [separate(type(whole), whole, i, slices, decrement=False) for i in range(count)]
    if isinstance(content, list | tuple) and content and all(isinstance(one, Data) for one in content):
        return list(content)
    raise UserError(f"Expected '{path}' to hold a PyG graph or a list of them (got {type(content).__name__})")


def read_graphs(graphs: PyGGraphs, name: str, target: str | None = None) -> GraphTensors:
    """The arrays of one graph, whose nodes are classified, or of a collection of graphs.

    Args:
        graphs: A `Data`, a `HeteroData`, or a sequence of them; one with a single element is one graph.
        name: Their name, for messages.
        target: The type of node whose labels and masks count, for `HeteroData` with several.

    Raises:
        UserError: If they are something else, or do not fit together.
    """
    from torch_geometric.data import Data, HeteroData

    if isinstance(graphs, Data):
        return _tensors_of(graphs)
    if isinstance(graphs, HeteroData):
        return _flatten(graphs, target)
    if not (hasattr(graphs, "__getitem__") and hasattr(graphs, "__len__")):
        raise UserError(f"Expected a PyG Data, HeteroData or a dataset of them (got {type(graphs).__name__})")
    if not len(graphs):
        raise UserError("Expected at least one graph (got an empty dataset)")
    if len(graphs) == 1 and isinstance(graphs[0], Data | HeteroData):
        return read_graphs(graphs[0], name, target)
    return _side_by_side(graphs, name)


def _tensors_of(data: Any) -> GraphTensors:
    """The arrays of a `Data`."""
    edges = _edges_of(data)
    masks = [_array(getattr(data, name, None)) for name in MASKS]
    known = [mask for mask in masks if mask is not None]
    values = getattr(data, "edge_attr", None)
    if values is None:
        values = getattr(data, "edge_weight", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyG warns about graphs without any size
        num_nodes = data.num_nodes
    if not num_nodes:
        raise UserError("Expected the PyG graph to have 'x', 'num_nodes' or edges (got none of them)")
    return GraphTensors(
        num_nodes=int(num_nodes),
        edges=edges,
        features=_array(getattr(data, "x", None)),
        labels=_array(getattr(data, "y", None)),
        masks=np.stack(known) if len(known) == len(MASKS) else None,
        edge_values=None if values is None or getattr(data, "edge_index", None) is None else _array(values),
    )


def _edges_of(data: Any) -> NDArray[Any]:
    """Edges [2, m] from `edge_index`, or from the transposed matrix `adj_t`."""
    index = getattr(data, "edge_index", None)
    if index is not None:
        return np.asarray(index.detach().cpu().numpy())
    matrix = getattr(data, "adj_t", None)
    if matrix is None:
        return np.zeros((2, 0), dtype=np.int64)
    if hasattr(matrix, "coo"):  # a SparseTensor of torch-sparse
        row, column, _ = matrix.coo()
    else:
        row, column = matrix.to_sparse_coo().coalesce().indices()
    return np.stack([column.numpy(), row.numpy()])


def _flatten(data: Any, target: str | None = None) -> GraphTensors:
    """Flatten a heterogeneous graph into one: types become one-hot features of nodes and of edges.

    Nodes are numbered type by type, in the order of `data.node_types`. Features of all types share their
    columns if they have the same number of them; otherwise each type has its own columns, zero for others.
    Edges have their type, one-hot, as features if there is more than one.

    Raises:
        UserError: If several types have labels and `target` names none of them.
    """
    types = list(data.node_types)
    sizes = [int(data[name].num_nodes or 0) for name in types]
    starts = dict(zip(types, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    edges, kinds = [np.zeros((2, 0), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for kind, (source, relation, end) in enumerate(data.edge_types):
        index = _edges_of(data[source, relation, end])
        edges.append(index + np.array([[starts[source]], [starts[end]]]))
        kinds.append(np.full(index.shape[1], kind))
    labels, masks = _target_arrays(data, _choose_target(data, types, target), starts, sum(sizes))
    several = len(data.edge_types) > 1
    return GraphTensors(
        num_nodes=sum(sizes),
        edges=np.concatenate(edges, axis=1),
        features=_typed_features(data, types, sizes),
        labels=labels,
        masks=masks,
        edge_values=np.eye(len(data.edge_types), dtype=np.float32)[np.concatenate(kinds)]
        if several
        else None,
    )


def _typed_features(data: Any, types: Sequence[str], sizes: Sequence[int]) -> NDArray[np.float32]:
    """One-hot type of every node, then features."""
    blocks = [_array(getattr(data[name], "x", None)) for name in types]
    widths = [0 if block is None else block.shape[1] for block in blocks]
    shared = len(set(widths)) == 1
    first = np.zeros(len(types), dtype=int) if shared else np.cumsum([0, *widths[:-1]])
    one_hot = np.repeat(np.eye(len(types), dtype=np.float32), sizes, axis=0)
    columns = np.zeros((sum(sizes), widths[0] if shared else sum(widths)), dtype=np.float32)
    start = 0
    for block, size, left, width in zip(blocks, sizes, first.tolist(), widths, strict=True):
        if block is not None:
            columns[start : start + size, left : left + width] = block
        start += size
    return np.concatenate([one_hot, columns], axis=1)


def _choose_target(data: Any, types: Sequence[str], target: str | None) -> str | None:
    labelled = [name for name in types if getattr(data[name], "y", None) is not None]
    if target is not None and target not in labelled:
        raise UserError(
            f"Expected 'target' to be a node type with labels, {', '.join(labelled)} (got '{target}')"
        )
    if target is None and len(labelled) > 1:
        raise UserError(f"Expected 'target', as several node types have labels (got {', '.join(labelled)})")
    return target or (labelled[0] if labelled else None)


def _target_arrays(
    data: Any, target: str | None, starts: dict[str, int], num_nodes: int
) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Labels and masks of one node type, extended to the nodes of all types; the others have neither."""
    if target is None:
        return None, None
    own = _tensors_of(data[target])
    rows = slice(starts[target], starts[target] + own.num_nodes)
    labels = np.full(num_nodes, -1, dtype=np.int64)
    if own.labels is None or own.labels.reshape(own.num_nodes, -1).shape[1] != 1:
        raise UserError(f"Expected one label for each node of type '{target}' (got other labels)")
    labels[rows] = own.labels.reshape(-1)
    if own.masks is None:
        return labels, None
    masks = np.zeros((3, num_nodes, *own.masks.shape[2:]), dtype=np.bool_)
    masks[:, rows] = own.masks
    return labels, masks


def raw_graph(tensors: GraphTensors, name: str, *, directed: bool = False) -> RawGraph:
    """A checked graph with clean edges.

    Raises:
        UserError: If anything is out of range, not finite, or of the wrong length.
    """
    splits = None
    if tensors.masks is not None:
        # PyG keeps several splits side by side, [n, s].
        train, validation, test = (mask.T for mask in tensors.masks)
        splits = splits_from_masks(train, validation, test)
    answer = infer_answer(tensors.labels)
    raw = make_raw(
        name,
        name,
        tensors.edges[0],
        tensors.edges[1],
        num_nodes=tensors.num_nodes,
        features=tensors.features,
        labels=tensors.labels if answer == "classes" else None,
        splits=splits,
        edge_values=tensors.edge_values,
        directed=directed,
    )
    if answer == "classes" or tensors.labels is None:
        return raw
    targets = check_targets(name, tensors.labels, answer, tensors.num_nodes)
    return replace(raw, targets=targets, answer=answer)


def infer_answer(labels: NDArray[Any] | None) -> Answer:
    """Several columns of 0 and 1 are labels, other columns and fractions are values, the rest are classes."""
    if labels is None or labels.dtype.kind not in "biuf":
        return "classes"
    known = labels[np.isfinite(labels)] if labels.dtype.kind == "f" else labels
    if labels.ndim == 2 and labels.shape[1] > 1:
        return "labels" if np.isin(known, (0, 1)).all() else "values"
    return "classes" if (known == np.round(known)).all() else "values"


def _side_by_side(graphs: Sequence[Any], name: str) -> GraphTensors:
    """The graphs of a collection as one disjoint union, with one label per graph.

    Raises:
        UserError: If only some graphs have features, labels or edge values, or in different numbers.
    """
    from torch_geometric.data import Data

    parts = []
    for number in range(len(graphs)):
        data = graphs[number]
        if not isinstance(data, Data):
            raise UserError(
                f"Expected graph {number} of '{name}' to be a PyG Data (got {type(data).__name__})"
            )
        parts.append(replace(_tensors_of(data), masks=None))
    sizes = np.array([part.num_nodes for part in parts])
    starts = np.cumsum(sizes) - sizes
    return GraphTensors(
        num_nodes=int(sizes.sum()),
        edges=np.concatenate([part.edges + start for part, start in zip(parts, starts, strict=True)], axis=1),
        features=_joined(parts, "features", name),
        labels=_graph_labels(parts, name),
        edge_values=_joined(parts, "edge_values", name),
        sizes=sizes,
    )


def union_of(tensors: GraphTensors, name: str) -> Graphs:
    """A collection in the form that `assemble` takes.

    Raises:
        UserError: If its graphs have no labels.
    """
    if tensors.sizes is None or tensors.labels is None:
        raise UserError(f"Expected the graphs of '{name}' to have a label 'y' each (got none)")
    values = check_edge_values(name, tensors.edge_values, tensors.edges.shape[1])
    return Graphs(tensors.sizes, tensors.edges, tensors.features, tensors.labels, values)


def _graph_labels(parts: Sequence[GraphTensors], name: str) -> NDArray[Any] | None:
    wrong = [i for i, part in enumerate(parts) if part.labels is not None and part.labels.size != 1]
    if wrong:
        shape = getattr(parts[wrong[0]].labels, "shape", None)
        raise UserError(
            f"Expected every graph of '{name}' to have one label (got shape {shape} for graph {wrong[0]}): "
            "a dataset of several graphs is a collection whose graphs are classified"
        )
    return _joined([replace(part, labels=_flat(part.labels)) for part in parts], "labels", name)


def _joined(parts: Sequence[GraphTensors], field: str, name: str) -> NDArray[Any] | None:
    arrays = [getattr(part, field) for part in parts]
    shapes = {None if array is None else array.shape[1:] for array in arrays}
    if len(shapes) > 1:
        raise UserError(f"Expected all graphs of '{name}' to have {field} of the same shape (got {shapes})")
    return None if arrays[0] is None else np.concatenate(arrays)


def _flat(values: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if values is None else values.reshape(-1)


def _array(tensor: Any) -> NDArray[Any] | None:
    if tensor is None:
        return None
    dense = tensor.to_dense() if getattr(tensor, "is_sparse", False) or hasattr(tensor, "coo") else tensor
    return np.asarray(dense.detach().cpu().numpy())
