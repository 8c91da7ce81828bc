"""Graphs in one file: the .npz layouts of published benchmarks, and the .mat files of LINKX."""

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.ingest.apart import read_apart
from pipeline.ingest.checks import RawGraph, make_raw
from pipeline.runtime.errors import UserError
from pipeline.runtime.memory import require_memory
from pipeline.store.splits import splits_from_masks

#: What numpy raises on a damaged header, and zlib on a damaged member.
DAMAGED = (
    ValueError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    OverflowError,
    SyntaxError,
    RuntimeError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_Arrays = Mapping[str, NDArray[Any]]


def read_npz(path: Path, *, directed: bool = False) -> RawGraph:
    """A graph from an .npz file, recognised by the arrays it holds.

    | layout | arrays |
    |---|---|
    | heterophilous | `edges` [m, 2], `node_features`, `node_labels`, `train_masks`, `val_…`, `test_…` |
    | shchur | `adj_data`, `adj_indices`, `adj_indptr`, `adj_shape`, `attr_…` or `attr_matrix`, `labels` |
    | plain | `edges` [2, m] or [m, 2], and optionally `features`, `labels`, `splits`, `edge_values` |

    Raises:
        UserError: If the file is damaged, needs pickle, or has none of these layouts.
    """
    arrays = load_arrays(path)
    if "node_features" in arrays:
        return _heterophilous(path, arrays, directed)
    if "adj_indptr" in arrays:
        return _shchur(path, arrays, directed)
    if "edges" in arrays:
        return _plain(path, arrays, directed)
    names = ", ".join(arrays) or "nothing"
    raise UserError(f"Expected '{path}' to hold 'edges', 'node_features' or 'adj_indptr' (got {names})")


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file, without unpickling anything."""
    try:
        # A file opened here is closed here, even if it turns out to be damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            if isinstance(content, np.ndarray):
                raise ValueError("a single array")
            _check_sizes(path, file)
            return {name: content[name] for name in content.files}
    except FileNotFoundError:
        raise UserError(f"Expected '{path}' to exist (got nothing)") from None
    except DAMAGED as error:
        raise UserError(
            f"Expected '{path}' to be a complete .npz file of plain arrays (got {error})"
        ) from error


def _check_sizes(path: Path, file: BinaryIO) -> None:
    """Refuse arrays whose headers disagree with the size of the file, or that exceed the memory.

    Raises:
        ValueError: Naming the array.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        require_memory(sum(member.file_size for member in members), f"'{path}'", "a smaller file")
        for member in members:
            with archive.open(member) as array:
                shape, kind = _read_header(array)
                promised, there = math.prod(shape) * kind.itemsize, member.file_size - array.tell()
            if promised != there and not kind.hasobject:
                raise ValueError(
                    f"'{member.filename}' with {there:,} bytes instead of the {promised:,} of its header"
                )


def _read_header(array: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    major, _ = np.lib.format.read_magic(array)
    read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, kind = read(array)
    return shape, kind


def read_mat(path: Path, *, directed: bool = False) -> RawGraph:
    """A graph from a .mat file of LINKX's Facebook networks: `A` and `local_info`.

    The class is the second column of `local_info` minus one (0 means unknown); every other column becomes
    one-hot features.

    Raises:
        UserError: If the file is damaged or has other content.
    """
    if not path.is_file():
        raise UserError(f"Expected '{path}' to exist (got nothing)")
    arrays = read_apart("mat", path)
    info = arrays["info"]
    if info.ndim != 2 or info.shape[1] < 2:
        raise UserError(f"Expected 'local_info' in '{path}' to have two columns (got shape {info.shape})")
    columns = [info[:, 0], *info[:, 2:].T]
    return make_raw(
        path.stem,
        str(path),
        arrays["row"],
        arrays["column"],
        num_nodes=len(info),
        features=np.concatenate([_one_hot(column) for column in columns], axis=1),
        labels=info[:, 1] - 1,
        directed=directed,
    )


def _heterophilous(path: Path, arrays: _Arrays, directed: bool) -> RawGraph:
    features, edges = arrays["node_features"], _pairs(path, arrays, rows_first=True)
    splits = None
    if {"train_masks", "val_masks", "test_masks"} <= arrays.keys():
        splits = splits_from_masks(*_masks(path, arrays, len(features)))
    return make_raw(
        path.stem,
        str(path),
        edges[0],
        edges[1],
        num_nodes=len(features),
        features=features,
        labels=arrays.get("node_labels"),
        splits=splits,
        directed=directed,
    )


def _masks(path: Path, arrays: _Arrays, num_nodes: int) -> list[NDArray[np.bool_]]:
    """The masks of the three parts [s, n]; each node is in at most one of them."""
    names = ("train_masks", "val_masks", "test_masks")
    masks = [np.atleast_2d(arrays[name]) for name in names]
    for name, mask in zip(names, masks, strict=True):
        if mask.shape != (len(masks[0]), num_nodes) or mask.dtype.kind not in "bui":
            raise UserError(
                f"Expected '{name}' in '{path}' to be a mask of {num_nodes} nodes for each of "
                f"{len(masks[0])} splits (got {mask.dtype} of shape {arrays[name].shape})"
            )
    parts = [mask.astype(np.bool_) for mask in masks]
    wrong = np.argwhere(np.sum(parts, axis=0, dtype=np.int8) > 1)
    if wrong.size:
        raise UserError(
            f"Expected the masks in '{path}' not to overlap (got node {wrong[0][1]} in two parts of split "
            f"{wrong[0][0]})"
        )
    return parts


def _shchur(path: Path, arrays: _Arrays, directed: bool) -> RawGraph:
    adjacency = _matrix(path, arrays, "adj").tocoo()
    features = arrays.get("attr_matrix")
    if features is None and "attr_indptr" in arrays:
        features = _matrix(path, arrays, "attr").toarray()
    return make_raw(
        path.stem,
        str(path),
        adjacency.row,
        adjacency.col,
        num_nodes=adjacency.shape[0],
        # Word counts are reduced to presence, as in the published experiments.
        features=None if features is None else (features > 0).astype(np.float32),
        labels=arrays.get("labels"),
        directed=directed,
    )


def _plain(path: Path, arrays: _Arrays, directed: bool) -> RawGraph:
    edges = _pairs(path, arrays, rows_first=False)
    sized = [arrays[name] for name in ("features", "labels") if name in arrays]
    num_nodes = len(sized[0]) if sized else int(edges.max(initial=-1)) + 1
    return make_raw(
        path.stem,
        str(path),
        edges[0],
        edges[1],
        num_nodes=num_nodes,
        features=arrays.get("features"),
        labels=arrays.get("labels"),
        splits=arrays.get("splits"),
        edge_values=arrays.get("edge_values"),
        directed=directed,
    )


def _pairs(path: Path, arrays: _Arrays, *, rows_first: bool) -> NDArray[Any]:
    edges = arrays["edges"] if "edges" in arrays else np.zeros((0, 2), dtype=np.int64)
    if not np.issubdtype(edges.dtype, np.integer):
        raise UserError(f"Expected 'edges' in '{path}' to hold integers (got {edges.dtype})")
    if edges.ndim == 2 and edges.shape[1] == 2 and (rows_first or edges.shape[0] != 2):
        return edges.T
    if edges.ndim == 2 and edges.shape[0] == 2 and not rows_first:
        return edges
    shapes = "[m, 2]" if rows_first else "[m, 2] or [2, m]"
    raise UserError(f"Expected 'edges' in '{path}' to have shape {shapes} (got {edges.shape})")


def _matrix(path: Path, arrays: _Arrays, prefix: str) -> Any:
    from scipy.sparse import csr_matrix

    try:
        parts = tuple(arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr"))
        return csr_matrix(parts, shape=tuple(arrays[f"{prefix}_shape"]))
    except (KeyError, ValueError) as error:
        raise UserError(f"Expected '{path}' to hold a complete matrix '{prefix}_…' (got {error})") from error


def _one_hot(column: NDArray[np.int64]) -> NDArray[np.float32]:
    values, place = np.unique(column, return_inverse=True)
    return np.eye(len(values), dtype=np.float32)[place]
