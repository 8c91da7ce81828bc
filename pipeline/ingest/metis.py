"""METIS graph files, validated against the format's manual without a loop over rows."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.runtime.memory import require_memory

Integers = NDArray[np.int64]

#: Upper bound on the bytes of memory per byte of the file, for the text and its numbers.
_BYTES_PER_BYTE = 20
_LONGEST_NUMBER = 10
_COMMENT = re.compile(rb"^%[^\n]*\n?", re.MULTILINE)


def read_metis(path: Path) -> tuple[int, tuple[Integers, Integers]]:
    """Nodes, and both directions of every edge, of a METIS file.

    The first line gives the numbers of nodes and edges; line i after it lists the neighbours of node i,
    counted from 1, so every edge is in two lines. Lines that begin with % are comments.

    Raises:
        UserError: If the counts are wrong, a line is missing or left over, a neighbour is not a node, an
            edge is in one line only, or nodes or edges have weights.
    """
    require_memory(_BYTES_PER_BYTE * path.stat().st_size, f"'{path}'", "an edge list, which is read in parts")
    text = _COMMENT.sub(b"", path.read_bytes())
    head, _, body = text.partition(b"\n")
    size, edges = _header(path, head)
    numbers, rows, lines = _tokens(path, body)
    if lines < size:
        raise UserError(f"Expected '{path}' to have a line for each of {size} nodes (got {lines})")
    surplus = np.flatnonzero(rows >= size)
    if surplus.size:
        raise UserError(
            f"Expected '{path}' to end after the lines of {size} nodes (got one more: "
            f"'{numbers[surplus[0]]} …'): correct the count in the first line"
        )
    _check_neighbours(path, numbers, rows, size)
    columns = numbers - 1
    if len(numbers) != 2 * edges:
        raise UserError(
            f"Expected '{path}' to list {edges} edges twice, as its first line says "
            f"(got {len(numbers)} neighbours instead of {2 * edges})"
        )
    _check_symmetry(path, rows, columns, size)
    return size, (rows, columns)


def _header(path: Path, line: bytes) -> tuple[int, int]:
    words = line.split()
    if len(words) < 2 or not all(word.isdigit() and len(word) <= _LONGEST_NUMBER for word in words):
        shown = line[:40].decode("ascii", "replace")
        raise UserError(f"Expected '{path}' to begin with the numbers of nodes and edges (got '{shown}')")
    if any(int(word) for word in words[2:3]):
        raise UserError(
            f"Expected '{path}' to be without weights (got format {words[2].decode()}): write it as an edge "
            "list with a column 'weight'"
        )
    return int(words[0]), int(words[1])


def _tokens(path: Path, body: bytes) -> tuple[Integers, Integers, int]:
    """The numbers in a text, the line of each, and the number of lines."""
    characters = np.frombuffer(body, dtype=np.uint8)
    digits = (characters >= ord("0")) & (characters <= ord("9"))
    blank = np.isin(characters, np.frombuffer(b" \t\r\n", dtype=np.uint8))
    breaks = characters == ord("\n")
    wrong = np.flatnonzero(~(digits | blank))
    if wrong.size:
        row = int(breaks[: wrong[0]].sum()) + 1
        raise UserError(
            f"Expected '{path}' to hold numbers only (got {bytes([characters[wrong[0]]])!r} in the line of "
            f"node {row})"
        )
    lines = int(breaks.sum()) + (1 if len(body) and not body.endswith(b"\n") else 0)
    starts = np.flatnonzero(digits & ~np.concatenate([[False], digits[:-1]]))
    ends = np.flatnonzero(digits & ~np.concatenate([digits[1:], [False]]))
    if (ends - starts >= _LONGEST_NUMBER).any():
        raise UserError(f"Expected '{path}' to hold numbers of nodes (got one of more than ten digits)")
    rows = np.cumsum(breaks, dtype=np.int64)[starts] if len(starts) else np.zeros(0, dtype=np.int64)
    numbers = np.array(body.split(), dtype=np.int64) if len(starts) else np.zeros(0, dtype=np.int64)
    return numbers, rows, lines


def _check_neighbours(path: Path, numbers: Integers, rows: Integers, size: int) -> None:
    wrong = np.flatnonzero((numbers < 1) | (numbers > size))
    if wrong.size:
        raise UserError(
            f"Expected the neighbours in '{path}' to be nodes 1…{size} "
            f"(got {numbers[wrong[0]]} in the line of node {rows[wrong[0]] + 1})"
        )


def _check_symmetry(path: Path, rows: Integers, columns: Integers, size: int) -> None:
    here = np.sort(rows * size + columns)
    there = np.sort(columns * size + rows)
    wrong = np.flatnonzero(here != there)
    if wrong.size:
        row, column = divmod(int(min(here[wrong[0]], there[wrong[0]])), size)
        raise UserError(
            f"Expected every edge of '{path}' in the lines of both of its nodes "
            f"(got the one of {row + 1} and {column + 1} in one of them)"
        )
