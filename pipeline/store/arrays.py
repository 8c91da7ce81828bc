"""Graphs in memory: the arrays that stages pass to one another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cocn.loading.csr import CSR, Ids
from pipeline.storage.files import list_column

__all__ = [
    "CSR",
    "EDGE_FEATURES_FILE",
    "SPLIT_NAMES",
    "CollectionArrays",
    "GraphArrays",
    "Ids",
    "Pairs",
    "Task",
]

SPLIT_NAMES = ("train", "val", "test")
EDGE_FEATURES_FILE = "edges/features.arrow"
TARGETS_FILE = "nodes/targets.arrow"
CLASSES_FILE = "nodes/classes.arrow"

Task = Literal["node", "graph", "link"]
#: What is known of a node: one of several classes, any number of labels, or numbers to regress.
Answer = Literal["classes", "labels", "values"]

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class GraphArrays:
    """A cleaned graph, ready to be stored.

    Shapes: n nodes, d features, s splits.
    """

    name: str
    csr: CSR
    features: Floats
    """[n, d]."""
    labels: Integers
    """[n], −1 where unknown."""
    splits: NDArray[np.int8]
    """[s, n]: 0 train, 1 validation, 2 test, −1 none."""
    num_classes: int
    """Outputs of a model: classes, or columns of `targets`."""
    directed: bool = False
    ids: pa.Array | None = None
    """The source's own node names, where they are not 0…n−1."""
    edge_values: Floats | None = None
    """[m, e] weights or features of the stored entries, parallel to `csr.indices`; None for plain edges."""
    classes: tuple[str, ...] | None = None
    """Names of the classes 0…C−1, where the source has names for them."""
    targets: Floats | None = None
    """[n, k] labels (0 or 1) or numbers to predict, NaN where unknown; None where there are classes."""
    answer: Answer = "classes"

    @property
    def task(self) -> Task:
        return "node"

    @property
    def num_graphs(self) -> int:
        return 1

    def tables(self) -> Mapping[str, pa.Table]:
        """The files of the store that hold this graph."""
        tables = {
            "edges/indptr.arrow": pa.table({"indptr": self.csr.indptr}),
            "edges/indices.arrow": pa.table({"indices": self.csr.indices}),
            "nodes/labels.arrow": pa.table({"label": self.labels}),
        }
        if self.csr.ways is not None:
            tables["edges/ways.arrow"] = pa.table({"ways": self.csr.ways})
        if self.features.shape[1]:
            tables["nodes/features.arrow"] = pa.table({"features": list_column(self.features)})
        if len(self.splits):
            tables["nodes/splits.arrow"] = pa.table({f"split_{k}": row for k, row in enumerate(self.splits)})
        if self.ids is not None:
            tables["nodes/ids.arrow"] = pa.table({"id": self.ids})
        if self.classes is not None:
            tables[CLASSES_FILE] = pa.table({"name": pa.array(self.classes, type=pa.string())})
        if self.edge_values is not None:
            tables[EDGE_FEATURES_FILE] = pa.table({"features": list_column(self.edge_values)})
        if self.targets is not None:
            tables[TARGETS_FILE] = pa.table({"targets": list_column(self.targets)})
        return tables


@dataclass(frozen=True)
class Pairs:
    """Pairs of nodes whose link is to be predicted, grouped by graph.

    Shapes: g graphs, p pairs.
    """

    indptr: Integers
    """[g + 1]: the pairs of graph i are `indptr[i]` … `indptr[i + 1]` − 1."""
    ends: Integers
    """[p, 2] node ids."""
    labels: Integers
    """[p]: 1 if the link exists, 0 if not."""


@dataclass(frozen=True)
class CollectionArrays:
    """Many cleaned graphs as one disjoint union, ready to be stored.

    Shapes: g graphs, n nodes of all graphs, d features, s splits.
    """

    name: str
    csr: CSR
    features: Floats
    """[n, d]."""
    indptr: Integers
    """[g + 1]: the nodes of graph i are `indptr[i]` … `indptr[i + 1]` − 1."""
    labels: Integers
    """[g], −1 where unknown."""
    splits: NDArray[np.int8]
    """[s, g]: 0 train, 1 validation, 2 test, −1 none."""
    num_classes: int
    task: Task = "graph"
    pairs: Pairs | None = None
    """The pairs that a collection for link prediction asks about."""
    directed: bool = False
    edge_values: Floats | None = None
    """[m, e] weights or features of the stored entries, parallel to `csr.indices`; None for plain edges."""

    @property
    def answer(self) -> Answer:
        return "classes"

    @property
    def num_graphs(self) -> int:
        return len(self.indptr) - 1

    def tables(self) -> Mapping[str, pa.Table]:
        """The files of the store that hold this collection."""
        tables = {
            "edges/indptr.arrow": pa.table({"indptr": self.csr.indptr}),
            "edges/indices.arrow": pa.table({"indices": self.csr.indices}),
            "graphs/indptr.arrow": pa.table({"indptr": self.indptr}),
            "graphs/labels.arrow": pa.table({"label": self.labels}),
            "graphs/splits.arrow": pa.table({f"split_{k}": row for k, row in enumerate(self.splits)}),
        }
        if self.features.shape[1]:
            tables["nodes/features.arrow"] = pa.table({"features": list_column(self.features)})
        if self.pairs is not None:
            ends = self.pairs.ends
            columns = {"source": ends[:, 0], "target": ends[:, 1], "label": self.pairs.labels}
            tables["pairs/indptr.arrow"] = pa.table({"indptr": self.pairs.indptr})
            tables["pairs/pairs.arrow"] = pa.table(columns)
        if self.edge_values is not None:
            tables[EDGE_FEATURES_FILE] = pa.table({"features": list_column(self.edge_values)})
        return tables
