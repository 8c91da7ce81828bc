"""A graph as a source gives it, and the checks it must pass before anything is built from it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.store.arrays import CSR, Answer
from pipeline.store.cleaning import EdgeReport, clean_edges, entry_rows
from pipeline.store.splits import NONE

#: Above this not every integer is representable as a float.
_EXACT_FLOATS = 2.0**53


@dataclass(frozen=True)
class RawGraph:
    """Clean edges together with what the source says about nodes.

    Shapes:
        features: [n, d] float32.
        labels: [n] int64, −1 where unknown.
        splits: [s, n] int8; no rows where the source has no split.
        edge_values: [m, e] float32, one row per entry of `csr`; None for plain edges.
        targets: [n, k] float32, labels or values; None where there are classes.
    """

    name: str
    csr: CSR
    edges: EdgeReport
    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    splits: NDArray[np.int8]
    ids: pa.Array | None = None
    classes: tuple[str, ...] | None = None
    edge_values: NDArray[np.float32] | None = None
    targets: NDArray[np.float32] | None = None
    answer: Answer = "classes"

    @property
    def num_classes(self) -> int:
        if self.targets is not None:
            return int(self.targets.shape[1])
        return int(self.labels.max(initial=-1)) + 1

    def known_classes(self) -> NDArray[np.int64]:
        """What random splits keep the shares of: classes, or else whether anything is known of a node."""
        if self.targets is None:
            return self.labels
        return np.where(np.isfinite(self.targets).any(axis=1), 0, -1)


def make_raw(
    name: str,
    origin: str,
    sources: NDArray[Any],
    targets: NDArray[Any],
    *,
    num_nodes: int,
    features: NDArray[Any] | None = None,
    labels: NDArray[Any] | None = None,
    splits: NDArray[np.int8] | None = None,
    edge_values: NDArray[Any] | None = None,
    directed: bool = False,
) -> RawGraph:
    """Check arrays that were read from a file, and clean their edges.

    Args:
        name: What the graph is called.
        origin: The file, for messages.
        sources: Start of every edge.
        targets: End of every edge.
        num_nodes: n.
        features: One row per node.
        labels: One class per node.
        splits: One row per split.
        edge_values: One weight, or one row of features, per raw edge. Of duplicate edges the first counts,
            and an edge that is listed in one direction only has the same value in both.
        directed: Keep the direction of the edges.

    Raises:
        UserError: If anything is out of range, not finite, or of the wrong length or type.
    """
    check_not_empty(origin, num_nodes)
    for column, values in (("source", sources), ("target", targets)):
        check_ids(origin, column, values, num_nodes)
    checked_values = check_edge_values(origin, edge_values, len(sources))
    csr, report = clean_edges(sources, targets, num_nodes, directed=directed)
    return RawGraph(
        name=name,
        csr=csr,
        edges=report,
        features=check_features(origin, features, num_nodes),
        labels=check_labels(origin, labels, num_nodes),
        splits=check_splits(origin, splits, num_nodes),
        edge_values=None if checked_values is None else checked_values[entry_rows(csr, sources, targets)],
    )


def check_not_empty(origin: str, num_nodes: int) -> None:
    """Refuse a graph of fewer than two nodes, which has nothing to order."""
    if num_nodes < 2:
        raise UserError(f"Expected '{origin}' to hold a graph of two nodes or more (got {num_nodes})")


def check_ids(origin: str, column: str, values: NDArray[Any], num_nodes: int, first_row: int = 0) -> None:
    """Refuse ids that are not integers in 0…n−1; rows are counted from 1."""
    if not np.issubdtype(values.dtype, np.integer):
        raise UserError(f"Expected column '{column}' of '{origin}' to hold integers (got {values.dtype})")
    wrong = np.flatnonzero((values < 0) | (values >= num_nodes))
    if wrong.size:
        raise UserError(
            f"Expected column '{column}' of '{origin}' to hold ids in 0…{num_nodes - 1} "
            f"(got {values[wrong[0]]} in row {first_row + int(wrong[0]) + 1})"
        )


def check_features(origin: str, features: NDArray[Any] | None, num_nodes: int) -> NDArray[np.float32]:
    """Features as float32 [n, d]; without any, d = 0."""
    if features is None:
        return np.zeros((num_nodes, 0), dtype=np.float32)
    if features.ndim == 1:
        features = features[:, None]
    if features.ndim != 2 or len(features) != num_nodes:
        raise UserError(
            f"Expected the features in '{origin}' to have a row for each of {num_nodes} nodes "
            f"(got shape {features.shape})"
        )
    if not _is_real(features.dtype):
        raise UserError(f"Expected the features in '{origin}' to be numbers (got {features.dtype})")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(features, dtype=np.float32)
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise UserError(
            f"Expected the features in '{origin}' to be finite "
            f"(got {features[row, column]} in row {row + 1}, column {column + 1})"
        )
    return values


def check_edge_values(
    origin: str, values: NDArray[Any] | None, num_edges: int, first_row: int = 0
) -> NDArray[np.float32] | None:
    """Weights or features of edges as float32 [r, e]; rows are counted from 1."""
    if values is None:
        return None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != num_edges or not values.shape[1]:
        raise UserError(
            f"Expected the edge values in '{origin}' to have a row for each of {num_edges} edges "
            f"(got shape {values.shape})"
        )
    if not _is_real(values.dtype):
        raise UserError(f"Expected the edge values in '{origin}' to be numbers (got {values.dtype})")
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=np.float32)
    wrong = np.flatnonzero(~np.isfinite(converted).all(1))
    if wrong.size:
        raise UserError(
            f"Expected the edge values in '{origin}' to be finite "
            f"(got {values[wrong[0]].tolist()} in row {first_row + int(wrong[0]) + 1})"
        )
    return converted


def _is_real(kind: np.dtype[Any]) -> bool:
    """Whether a type holds real numbers; complex ones would silently lose their imaginary part."""
    return bool(
        np.issubdtype(kind, np.integer) or np.issubdtype(kind, np.floating) or np.issubdtype(kind, np.bool_)
    )


def check_labels(origin: str, labels: NDArray[Any] | None, num_nodes: int) -> NDArray[np.int64]:
    """Labels as int64 [n], −1 where unknown; without any, all −1."""
    if labels is None:
        return np.full(num_nodes, -1, dtype=np.int64)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (num_nodes,):
        raise UserError(
            f"Expected the labels in '{origin}' to be one for each of {num_nodes} nodes "
            f"(got shape {labels.shape})"
        )
    whole = _as_integers(origin, labels)
    # There cannot be more classes than nodes: larger numbers are codes or ids, not classes.
    wrong = np.flatnonzero((whole < -1) | (whole >= num_nodes))
    if wrong.size:
        raise UserError(
            f"Expected the labels in '{origin}' to be classes 0…C−1, or −1 where unknown "
            f"(got {whole[wrong[0]]} in row {int(wrong[0]) + 1}): number the classes from 0"
        )
    return whole


def check_targets(origin: str, targets: NDArray[Any], answer: Answer, num_nodes: int) -> NDArray[np.float32]:
    """Labels or values as float32 [n, k], NaN where unknown."""
    if targets.ndim == 1:
        targets = targets[:, None]
    if targets.ndim != 2 or len(targets) != num_nodes or not targets.shape[1]:
        raise UserError(
            f"Expected the {answer} in '{origin}' to have a row for each of {num_nodes} nodes "
            f"(got shape {targets.shape})"
        )
    if not (np.issubdtype(targets.dtype, np.number) or targets.dtype == np.bool_):
        raise UserError(f"Expected the {answer} in '{origin}' to be numbers (got {targets.dtype})")
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(targets, dtype=np.float32)
    allowed = ~np.isinf(values) if answer == "values" else np.isnan(values) | (values == 0) | (values == 1)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        wanted = "finite, or NaN where unknown" if answer == "values" else "0 or 1, or NaN where unknown"
        raise UserError(
            f"Expected the {answer} in '{origin}' to be {wanted} "
            f"(got {targets[row, column]} in row {row + 1}, column {column + 1})"
        )
    return values


def check_splits(origin: str, splits: NDArray[np.int8] | None, num_nodes: int) -> NDArray[np.int8]:
    """Splits as int8 [s, n]."""
    if splits is None:
        return np.zeros((0, num_nodes), dtype=np.int8)
    splits = np.atleast_2d(splits)
    if splits.shape[1] != num_nodes:
        raise UserError(
            f"Expected the splits in '{origin}' to have a place for each of {num_nodes} nodes "
            f"(got shape {splits.shape})"
        )
    wrong = np.argwhere((splits < NONE) | (splits > 2))
    if wrong.size:
        split, row = wrong[0]
        raise UserError(
            f"Expected the splits in '{origin}' to be 0, 1, 2 or −1 "
            f"(got {splits[split, row]} in row {row + 1})"
        )
    return splits.astype(np.int8)


def check_split_labels(origin: str, raw: RawGraph) -> None:
    """Refuse a split that trains or tests on a node without a class, if any node has one."""
    if not len(raw.splits) or raw.num_classes == 0 or raw.targets is not None:
        return
    wrong = np.argwhere((raw.splits >= 0) & (raw.labels < 0))
    if wrong.size:
        split, row = wrong[0]
        raise UserError(
            f"Expected every node in split {split} of '{origin}' to have a label "
            f"(got none for node {row}): remove it from the split or label it"
        )


def _as_integers(origin: str, labels: NDArray[Any]) -> NDArray[np.int64]:
    if np.issubdtype(labels.dtype, np.unsignedinteger):
        labels = np.minimum(labels, np.iinfo(np.int64).max)
    if np.issubdtype(labels.dtype, np.integer) or labels.dtype == np.bool_:
        return labels.astype(np.int64)
    if not np.issubdtype(labels.dtype, np.floating):
        raise UserError(f"Expected the labels in '{origin}' to be integers (got {labels.dtype})")
    wrong = np.flatnonzero(~(np.abs(labels) < _EXACT_FLOATS) | (labels != np.round(labels)))
    if wrong.size:
        raise UserError(
            f"Expected the labels in '{origin}' to be integers "
            f"(got {labels[wrong[0]]} in row {int(wrong[0]) + 1})"
        )
    return labels.astype(np.int64)
