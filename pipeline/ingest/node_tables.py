"""Features, labels and splits of nodes from .npy, .npz, CSV, TSV and Parquet files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from pipeline.ingest.archives import DAMAGED, load_arrays
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Answer
from pipeline.store.splits import NONE, TEST, TRAIN, VALIDATION

DEFAULT_ID, DEFAULT_LABEL, DEFAULT_SPLIT = "id", "label", "split"
_SPLIT_WORDS = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "test": TEST,
    "": NONE,
    "none": NONE,
}
_UNKNOWN_WORD = -2


@dataclass(frozen=True)
class NodeColumns:
    """What a file says about the nodes, row by row; None for what it does not contain."""

    path: Path
    num_rows: int
    ids: pa.Array | None = None
    features: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    classes: tuple[str, ...] | None = None
    """Names of the classes 0…C−1, if the labels are text."""
    splits: NDArray[np.int8] | None = None
    targets: NDArray[Any] | None = None
    """[n, k] labels or values, NaN in gaps."""


@dataclass(frozen=True)
class ColumnNames:
    """Columns requested by name; None uses the usual name if it is present."""

    id: str | None = None
    label: str | None = None
    split: str | None = None
    answer: Answer = "classes"
    """What the label column holds; several columns, separated by commas, unless it is classes."""


def read_node_file(path: Path, purpose: str, names: ColumnNames) -> NodeColumns:
    """Read a file of nodes.

    Args:
        path: .npy, .npz, .csv, .tsv or .parquet. Tables may have columns `id`, `label` and `split`; all
            others are features: numbers, or lists of numbers of equal length.
        purpose: `features` or `labels`: how to read a bare array, or which array to read.
        names: Columns with other than the usual names.

    Raises:
        UserError: If the file is missing, damaged, empty, ragged or lacks a column.
    """
    if not path.is_file():
        raise UserError(f"Expected '{path}' to be a file (got nothing there)")
    if path.stat().st_size == 0:
        raise UserError(f"Expected '{path}' to hold {purpose} (got an empty file)")
    if path.suffix in (".npy", ".npz"):
        values = _read_array(path, purpose)
        if purpose == "labels" and names.answer != "classes":
            return NodeColumns(path, len(values), targets=values)
        if purpose == "labels" and values.dtype.kind in "US" and values.ndim == 1:
            labels, classes = _number_classes(pa.array(values.astype(str)))
            return NodeColumns(path, len(values), labels=labels, classes=classes)
        if purpose == "labels":
            return NodeColumns(path, len(values), labels=values)
        return NodeColumns(path, len(values), features=values)
    if path.suffix in (".csv", ".tsv", ".parquet"):
        table = _read_table(path)
        try:
            return _split_columns(path, table, names, purpose)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            line = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(f"Expected '{path}' to hold text and numbers (got {line})") from error
    raise UserError(f"Expected '{path}' to end in .npy, .npz, .csv, .tsv or .parquet (got '{path.suffix}')")


def merge_tables(tables: list[NodeColumns]) -> NodeColumns | None:
    """Combine what two files say about the same nodes; the labels of the second take precedence."""
    if len(tables) < 2:
        return tables[0] if tables else None
    first, second = tables
    if first.num_rows != second.num_rows:
        raise UserError(
            f"Expected '{second.path}' to have {first.num_rows} rows, like '{first.path}' "
            f"(got {second.num_rows})"
        )
    if first.ids is not None and second.ids is not None and not first.ids.equals(second.ids):
        raise UserError(
            f"Expected '{second.path}' to name the nodes of '{first.path}' in the same order (got others)"
        )
    return replace(
        first,
        ids=first.ids if first.ids is not None else second.ids,
        features=first.features if first.features is not None else second.features,
        labels=second.labels if second.labels is not None else first.labels,
        classes=second.classes if second.labels is not None else first.classes,
        targets=second.targets if second.targets is not None else first.targets,
        splits=second.splits if second.splits is not None else first.splits,
    )


def check_surplus(nodes: NodeColumns, degrees: NDArray[np.integer[Any]], edges: Path) -> None:
    """Refuse labels beyond the last node of an edge list, unless features show that there are more nodes.

    Raises:
        UserError: Naming the last node that has an edge.
    """
    if nodes.ids is not None or nodes.features is not None:
        return
    size = int(np.flatnonzero(degrees).max(initial=0)) + 1
    if nodes.num_rows > size:
        raise UserError(
            f"Expected '{nodes.path}' to have {size} rows, one for each node of '{edges}' "
            f"(got {nodes.num_rows}): pass --nodes {nodes.num_rows} if the others have no edges"
        )


def _read_array(path: Path, purpose: str) -> NDArray[Any]:
    if path.suffix == ".npy":
        try:
            values = np.load(path, allow_pickle=False, mmap_mode="r")
        except DAMAGED as error:
            raise UserError(
                f"Expected '{path}' to be a complete .npy file of numbers (got {error})"
            ) from error
    else:
        arrays = load_arrays(path)
        short = {"features": "x", "labels": "y"}[purpose]
        found = [name for name in (purpose, short) if name in arrays] or list(arrays)[: len(arrays) == 1]
        if not found:
            raise UserError(f"Expected '{path}' to hold an array '{purpose}' (got {', '.join(arrays)})")
        values = arrays[found[0]]
    if values.ndim == 0 or len(values) == 0:
        raise UserError(f"Expected '{path}' to hold {purpose} (got an array of shape {values.shape})")
    return np.asarray(values)


def _read_table(path: Path) -> pa.Table:
    try:
        if path.suffix == ".parquet":
            return _with_names(parquet.read_table(path))
        delimiter = "\t" if path.suffix == ".tsv" else ","
        table = csv.read_csv(
            # An empty line of a single column is a gap: skipping it would shift all rows below.
            path,
            parse_options=csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
        )
        return _with_names(table)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"Expected '{path}' to be a complete table with equal rows (got {line})") from error


def _with_names(table: pa.Table) -> pa.Table:
    """The table, if its column names are distinct and valid text.

    Raises:
        pa.ArrowInvalid: If two columns share a name.
        UnicodeDecodeError: If a name is not valid text.
    """
    names = table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise pa.ArrowInvalid(f"two columns named '{twice}'")
    return table


def _split_columns(path: Path, table: pa.Table, names: ColumnNames, purpose: str) -> NodeColumns:
    if table.num_rows == 0:
        raise UserError(f"Expected '{path}' to hold nodes (got no rows)")
    found = {
        kind: _find(path, table, wanted, default)
        for kind, wanted, default in (
            ("id", names.id, DEFAULT_ID),
            ("label", names.label if names.answer == "classes" else None, DEFAULT_LABEL),
            ("split", names.split, DEFAULT_SPLIT),
        )
    }
    if purpose == "labels" and found["label"] is None and names.answer == "classes":
        raise UserError(
            f"Expected '{path}' to have column '{DEFAULT_LABEL}' (got {', '.join(table.column_names)}): name "
            "the one with the classes with --label-column"
        )
    if names.answer != "classes":
        return _with_targets(path, table, names, found, purpose)
    rest = [name for name in table.column_names if name not in found.values()]
    labels, classes = _labels(path, table, found["label"])
    return NodeColumns(
        path,
        table.num_rows,
        ids=_names(path, table, found["id"]),
        features=np.concatenate([_numbers(path, name, table[name]) for name in rest], axis=1)
        if rest
        else None,
        labels=labels,
        classes=classes,
        splits=_splits(path, table, found["split"]),
    )


def _with_targets(
    path: Path, table: pa.Table, names: ColumnNames, found: dict[str, str | None], purpose: str
) -> NodeColumns:
    """A table whose label columns hold labels or values; a gap is one that is not known.

    Other columns of a table of labels are left alone; they are as many questions to ask about the nodes.
    """
    if names.label is None:
        wanted = [] if found["label"] is None else [found["label"]]
    else:
        wanted = [name.strip() for name in names.label.split(",")]
    if purpose == "features" and not set(wanted) <= set(table.column_names):
        wanted = []  # they are in the other file
    for name in wanted:
        _find(path, table, name, "")
    used = {found["id"], found["split"], *wanted}
    rest = [name for name in table.column_names if name not in used and purpose == "features"]
    columns = [_targets(path, name, table[name]) for name in wanted]
    return NodeColumns(
        path,
        table.num_rows,
        ids=_names(path, table, found["id"]),
        features=np.concatenate([_numbers(path, name, table[name]) for name in rest], axis=1)
        if rest
        else None,
        targets=np.concatenate(columns, axis=1) if columns else None,
        splits=_splits(path, table, found["split"]),
    )


def _targets(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return _numbers(path, name, column)
    return np.asarray(pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy())[:, None]


def _find(path: Path, table: pa.Table, wanted: str | None, default: str) -> str | None:
    if wanted is None:
        return default if default in table.column_names else None
    if wanted not in table.column_names:
        raise UserError(f"Expected '{path}' to have column '{wanted}' (got {', '.join(table.column_names)})")
    return wanted


def _names(path: Path, table: pa.Table, name: str | None) -> pa.Array | None:
    if name is None:
        return None
    column = table[name].combine_chunks()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.string())
    else:
        raise UserError(f"Expected column '{name}' of '{path}' to hold integers or text (got {column.type})")
    counts = pc.value_counts(column)
    repeated = pc.index(pc.greater(counts.field("counts"), 1), True).as_py()
    if column.null_count or repeated >= 0:
        which = "a gap" if column.null_count else f"'{counts.field('values')[repeated]}' twice"
        raise UserError(f"Expected column '{name}' of '{path}' to name every node once (got {which})")
    return column


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[Any]:
    kind = column.type
    _refuse_gaps(path, name, column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = pc.list_value_length(column).to_numpy()
        wrong = np.flatnonzero(lengths != lengths[0])
        if wrong.size:
            raise UserError(
                f"Expected the lists in column '{name}' of '{path}' to have {lengths[0]} numbers each "
                f"(got {lengths[wrong[0]]} in row {int(wrong[0]) + 1})"
            )
        flat = pc.list_flatten(column)
        _refuse_gaps(path, name, flat)
        return np.asarray(flat.to_numpy()).reshape(len(column), int(lengths[0]))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy())[:, None]
    raise UserError(
        f"Expected column '{name}' of '{path}' to hold numbers (got {kind}): name its purpose or remove it"
    )


def _number_classes(names: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number named classes in the order of their names; −1 where there is none."""
    text = pc.utf8_trim_whitespace(names.cast(pa.string()))
    text = pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)
    known = pc.drop_null(pc.unique(text))
    classes = known.take(pc.sort_indices(known))
    numbers = pc.fill_null(pc.index_in(text, value_set=classes), -1)
    return np.asarray(numbers.to_numpy(), dtype=np.int64), tuple(classes.to_pylist())


def _labels(
    path: Path, table: pa.Table, name: str | None
) -> tuple[NDArray[Any] | None, tuple[str, ...] | None]:
    if name is None:
        return None, None
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _number_classes(column.combine_chunks())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise UserError(f"Expected column '{name}' of '{path}' to hold classes (got {column.type})")
    # A gap is a node whose class is unknown.
    return np.asarray(pc.fill_null(column, -1).to_numpy()), None


def _splits(path: Path, table: pa.Table, name: str | None) -> NDArray[np.int8] | None:
    if name is None:
        return None
    column = table[name]
    if pa.types.is_integer(column.type):
        values = np.asarray(pc.fill_null(column, NONE).to_numpy())
        wrong = np.flatnonzero((values < NONE) | (values > TEST))
        parts = np.clip(values, NONE, TEST)
    else:
        encoded = pc.fill_null(column.cast(pa.string()), "").combine_chunks().dictionary_encode()
        # One look-up per distinct word, not per node.
        known = [
            _SPLIT_WORDS.get(word.strip().lower(), _UNKNOWN_WORD) for word in encoded.dictionary.to_pylist()
        ]
        parts = np.array(known)[encoded.indices.to_numpy()]
        wrong = np.flatnonzero(parts == _UNKNOWN_WORD)
    if wrong.size:
        raise UserError(
            f"Expected column '{name}' of '{path}' to hold train, val or test "
            f"(got '{column[int(wrong[0])]}' in row {int(wrong[0]) + 1})"
        )
    return np.asarray(parts, dtype=np.int8)[None, :]


def _refuse_gaps(path: Path, name: str, column: pa.ChunkedArray) -> None:
    if column.null_count:
        wrong = pc.index(pc.is_null(column), True).as_py()
        raise UserError(f"Expected column '{name}' of '{path}' to have no gaps (got one in row {wrong + 1})")
