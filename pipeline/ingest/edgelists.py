"""Edge lists in text or Parquet, read in blocks, so that files larger than memory take bounded memory."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet

from pipeline.ingest.checks import check_edge_values, check_ids
from pipeline.runtime.errors import UserError

BLOCK_BYTES = 16 * 2**20
_BLOCK_ROWS = 2**20
_COMMENTS = ("#", "%")
_DEFAULT_WEIGHT = "weight"
TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".edges", ".el", ".edgelist", ".snap")


@dataclass(frozen=True)
class EdgeList:
    """Where the edges are stored and which columns hold them."""

    path: Path
    source_column: str | None = None
    target_column: str | None = None
    weight_column: str | None = None
    """Column with a weight, or several separated by commas; by default `weight` if present."""

    def blocks(self) -> Iterator["Block"]:
        """The edges, one block at a time.

        Raises:
            UserError: If the file is missing, empty, damaged, or lacks a column.
        """
        if not self.path.is_file():
            raise UserError(f"Expected '{self.path}' to be a file (got nothing there)")
        if self.path.stat().st_size == 0:
            raise UserError(f"Expected '{self.path}' to hold edges (got an empty file)")
        row = 0
        try:
            for batch in self._batches():
                yield self._block(batch, row)
                row += batch.num_rows
        except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
            raise UserError(
                f"Expected '{self.path}' to be a complete edge list (got {_one_line(error)})"
            ) from error
        if row == 0:
            raise UserError(f"Expected '{self.path}' to hold edges (got no rows)")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self.path.suffix == ".parquet":
            yield from parquet.ParquetFile(self.path).iter_batches(batch_size=_BLOCK_ROWS)
            return
        text = TextFormat.detect(self.path)
        with pa.input_stream(str(self.path), compression="detect") as stream:
            yield from csv.open_csv(
                stream,
                read_options=csv.ReadOptions(
                    block_size=BLOCK_BYTES,
                    skip_rows=text.skip,
                    autogenerate_column_names=not text.header,
                    use_threads=False,
                ),
                parse_options=csv.ParseOptions(delimiter=text.delimiter),
            )

    def _block(self, batch: pa.RecordBatch, row: int) -> "Block":
        names = batch.schema.names
        if len(names) < 2:
            raise UserError(
                f"Expected '{self.path}' to have two columns (got {len(names)}: '{', '.join(names)}')"
            )
        columns, chosen = [], []
        for default, wanted in enumerate((self.source_column, self.target_column)):
            name = names[default] if wanted is None else wanted
            if name not in names:
                raise UserError(f"Expected '{self.path}' to have column '{name}' (got {', '.join(names)})")
            columns.append(_check_column(self.path, name, batch.column(names.index(name)), row))
            chosen.append(name)
        if chosen[0] == chosen[1]:
            raise UserError(
                f"Expected two columns of '{self.path}' for the ends of an edge (got '{chosen[0]}' twice): "
                "set --source-column and --target-column"
            )
        return Block(row, columns[0], columns[1], (chosen[0], chosen[1]), self._values(batch, row))

    def _values(self, batch: pa.RecordBatch, row: int) -> NDArray[np.float32] | None:
        names = batch.schema.names
        if self.weight_column is None:
            wanted = [_DEFAULT_WEIGHT] if _DEFAULT_WEIGHT in names[2:] else []
        else:
            wanted = [name.strip() for name in self.weight_column.split(",")]
        for name in wanted:
            if name not in names:
                raise UserError(f"Expected '{self.path}' to have column '{name}' (got {', '.join(names)})")
        if not wanted:
            return None
        columns = [_numbers(self.path, name, batch.column(names.index(name)), row) for name in wanted]
        return check_edge_values(str(self.path), np.stack(columns, axis=1), batch.num_rows, row)


@dataclass(frozen=True)
class Block:
    """Consecutive rows of an edge list; `row` is the number of rows before it."""

    row: int
    source: pa.Array
    target: pa.Array
    names: tuple[str, str]
    values: NDArray[np.float32] | None = None
    """[r, e] weights or features."""

    @property
    def is_text(self) -> bool:
        return not pa.types.is_integer(self.source.type) or not pa.types.is_integer(self.target.type)


@dataclass(frozen=True)
class TextFormat:
    """How the rows of a text file are written."""

    delimiter: str
    header: bool
    skip: int

    @classmethod
    def detect(cls, path: Path) -> "TextFormat":
        """Look at the first lines: comments to skip, the separator, whether there is a header."""
        with _open_text(path) as file:
            lines = list(islice(file, 1000))
        skip = next((i for i, line in enumerate(lines) if not line.startswith(_COMMENTS)), len(lines))
        if skip == len(lines) or not lines[skip].strip():
            raise UserError(f"Expected '{path}' to hold edges (got no row in its first lines)")
        first = lines[skip].rstrip("\r\n")
        delimiter = next((mark for mark in ("\t", ",", ";", " ") if mark in first), ",")
        cells = [cell.strip().strip('"') for cell in first.split(delimiter)]
        return cls(delimiter, header=not all(_is_number(cell) for cell in cells[:2]), skip=skip)


class Numbering:
    """Assigns the numbers 0…n−1 to the nodes of an edge list.

    Args:
        num_nodes: n.
        ids: The name of each node; None where names are the numbers themselves.
    """

    def __init__(self, num_nodes: int, ids: pa.Array | None = None) -> None:
        self.num_nodes = num_nodes
        self.ids = ids

    @classmethod
    def from_names(cls, names: pa.Array) -> "Numbering":
        """Number nodes in the order of `names`; if these are 0…n−1, no table is needed."""
        if pa.types.is_integer(names.type) and len(names):
            values = names.to_numpy()
            if values[0] == 0 and values[-1] == len(values) - 1 and (np.diff(values) == 1).all():
                return cls(len(names))
        return cls(len(names), names)

    def number(self, edges: EdgeList, block: Block) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The numbers of both ends of a block's edges.

        Raises:
            UserError: If a name is unknown.
        """
        first, second = block.names
        return self._number(edges, block, first, block.source), self._number(
            edges, block, second, block.target
        )

    def _number(self, edges: EdgeList, block: Block, column: str, names: pa.Array) -> NDArray[np.int64]:
        if self.ids is None:
            return self._check_range(edges, block, column, names)
        if pa.types.is_string(self.ids.type) or pa.types.is_large_string(self.ids.type):
            names = names.cast(self.ids.type)
        elif not pa.types.is_integer(names.type):
            raise UserError(
                f"Expected the ids in '{edges.path}' to be integers, as in the node table (got text)"
            )
        else:
            names = names.cast(self.ids.type)
        found = pc.index_in(names, value_set=self.ids)
        if found.null_count:
            wrong = pc.index(pc.is_null(found), True).as_py()
            raise UserError(
                f"Expected column '{column}' of '{edges.path}' to hold ids of the node table "
                f"(got '{names[wrong]}' in row {block.row + wrong + 1})"
            )
        return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)

    def _check_range(self, edges: EdgeList, block: Block, column: str, names: pa.Array) -> NDArray[np.int64]:
        if not pa.types.is_integer(names.type):
            raise UserError(
                f"Expected column '{column}' of '{edges.path}' to hold integers in 0…{self.num_nodes - 1} "
                f"(got '{names[0]}' in row {block.row + 1}): give the node table an id column"
            )
        values = np.asarray(names.to_numpy(), dtype=np.int64)
        check_ids(str(edges.path), column, values, self.num_nodes, block.row)
        return values


def collect_names(edges: EdgeList) -> pa.Array:
    """The distinct ids of an edge list, ascending; integers if all of them are."""
    known: pa.Array | None = None
    text = False
    for block in edges.blocks():
        text = text or block.is_text
        kind = pa.string() if text else pa.int64()
        parts = [block.source.cast(kind), block.target.cast(kind)]
        if known is not None:
            parts.append(known.cast(kind))
        known = pc.unique(pa.chunked_array(parts))
    if known is None:
        return pa.array([], type=pa.int64())
    return known.take(pc.sort_indices(known))


def _check_column(path: Path, name: str, column: pa.Array, row: int) -> pa.Array:
    if column.null_count:
        wrong = pc.index(pc.is_null(column), True).as_py()
        raise UserError(
            f"Expected column '{name}' of '{path}' to have no gaps (got one in row {row + wrong + 1})"
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_unsigned_integer(column.type) or pa.types.is_signed_integer(column.type):
        return _check_sign(path, name, column.cast(pa.int64()), row)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _check_text(path, name, column.cast(pa.string()), row)
    raise UserError(f"Expected column '{name}' of '{path}' to hold integers or text (got {column.type})")


def _numbers(path: Path, name: str, column: pa.Array, row: int) -> NDArray[np.generic]:
    if not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_boolean(column.type)
    ):
        raise UserError(f"Expected column '{name}' of '{path}' to hold numbers (got {column.type})")
    if column.null_count:
        wrong = pc.index(pc.is_null(column), True).as_py()
        raise UserError(
            f"Expected column '{name}' of '{path}' to have no gaps (got one in row {row + wrong + 1})"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _check_text(path: Path, name: str, column: pa.Array, row: int) -> pa.Array:
    wrong = pc.index(pc.match_substring(column, "\0"), True).as_py()
    if wrong >= 0:
        raise UserError(
            f"Expected column '{name}' of '{path}' to hold text (got a NUL byte in row {row + wrong + 1}): "
            "is it a binary file?"
        )
    return column


def _check_sign(path: Path, name: str, column: pa.Array, row: int) -> pa.Array:
    wrong = np.flatnonzero(column.to_numpy() < 0)
    if wrong.size:
        raise UserError(
            f"Expected column '{name}' of '{path}' to hold ids of 0 or more "
            f"(got {column[int(wrong[0])]} in row {row + int(wrong[0]) + 1})"
        )
    return column


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _is_number(cell: str) -> bool:
    return cell.lstrip("-").isdigit()


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
