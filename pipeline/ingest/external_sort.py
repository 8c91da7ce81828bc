"""Adjacency structures from more edges than fit in memory: sorted range by range, on disk."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.store.arrays import CSR
from pipeline.store.cleaning import EdgeReport, clean_edges, distinct, entry_rows, index_type, is_undirected

# Edges kept in memory; sorting takes about 60 bytes per edge.
MEMORY_EDGES = 2**24
_CHUNK_EDGES = 2**20
_PAIR = np.dtype(np.int64)

Pairs = NDArray[np.int64]
Values = NDArray[np.float32]


@dataclass(frozen=True)
class SortedEdges:
    """An adjacency structure, what was found among the raw edges, and the values of its entries [m, e]."""

    csr: CSR
    report: EdgeReport
    values: Values | None = None


@dataclass(frozen=True)
class SortedRange:
    """The entries of a range of nodes, and the raw edge that each one's values come from."""

    rows: Pairs
    columns: Pairs
    origins: Pairs
    ways: NDArray[np.uint8]
    num_forward: int
    num_both: int


class EdgeSpill:
    """Collects edges, first in memory and then, once there are too many, in a file, and sorts them.

    Args:
        directory: Where files go; they must outlive the structure, whose entries may be mapped from one.
        num_nodes: n.
        directed: Keep the direction of the edges.
        num_values: Numbers per edge, such as a weight.
        memory_edges: How many edges may be in memory at once.
    """

    def __init__(
        self,
        directory: Path,
        num_nodes: int,
        *,
        directed: bool = False,
        num_values: int = 0,
        memory_edges: int = MEMORY_EDGES,
    ) -> None:
        self._directory = directory
        self._num_nodes = num_nodes
        self._directed = directed
        self._num_values = num_values
        self._memory_edges = memory_edges
        self._kept: list[Pairs] = []
        self._kept_values: list[Values] = []
        self._num_kept = 0
        self._file: BinaryIO | None = None
        self.spilled = 0

    def append(
        self, sources: NDArray[np.int64], targets: NDArray[np.int64], values: Values | None = None
    ) -> None:
        """Add edges, with the values that come with them [r, e]."""
        self._kept.append(np.stack([sources, targets], axis=1))
        if values is not None:
            self._kept_values.append(values)
        self._num_kept += len(sources)
        if self._num_kept > self._memory_edges:
            self._flush()

    def finish(self) -> SortedEdges:
        """Sort everything into a structure."""
        if self._file is None:
            return self._sort_in_memory()
        self._flush()
        self._file.close()
        return self._sort()

    def _sort_in_memory(self) -> SortedEdges:
        pairs = np.concatenate(self._kept) if self._kept else np.zeros((0, 2), dtype=np.int64)
        csr, report = clean_edges(pairs[:, 0], pairs[:, 1], self._num_nodes, directed=self._directed)
        if not self._num_values:
            return SortedEdges(csr, report)
        values = np.concatenate([np.zeros((0, self._num_values), dtype=np.float32), *self._kept_values])
        return SortedEdges(csr, report, values[entry_rows(csr, pairs[:, 0], pairs[:, 1])])

    def _flush(self) -> None:
        if self._file is None:
            self._file = (self._directory / "edges.bin").open("wb")
        for pairs in self._kept:
            pairs.tofile(self._file)
            self.spilled += len(pairs)
        with (self._directory / "values.bin").open("ab") as file:
            for values in self._kept_values:
                values.astype(np.float32).tofile(file)
        self._kept, self._kept_values, self._num_kept = [], [], 0

    def _chunks(self) -> Iterator[Pairs]:
        with (self._directory / "edges.bin").open("rb") as file:
            while (values := np.fromfile(file, dtype=_PAIR, count=2 * _CHUNK_EDGES)).size:
                yield values.reshape(-1, 2)

    def _sort(self) -> SortedEdges:
        bounds, loops = self._ranges()
        self._partition(bounds)
        (self._directory / "edges.bin").unlink()
        degrees = np.zeros(self._num_nodes, dtype=np.int64)
        forward = both = 0
        path, kind = self._directory / "indices.bin", index_type(self._num_nodes)
        raw_values = self._mapped("values.bin")
        with (
            path.open("wb") as file,
            (self._directory / "entry-values.bin").open("wb") as value_file,
            (self._directory / "ways.bin").open("wb") as ways_file,
        ):
            for number, (low, high) in enumerate(pairwise(bounds)):
                part = self._sort_range(number, int(low))
                forward, both = forward + part.num_forward, both + part.num_both
                degrees[low:high] = np.bincount(part.rows - low, minlength=high - low)
                part.columns.astype(kind).tofile(file)
                part.ways.tofile(ways_file)
                if raw_values is not None:
                    raw_values[part.origins].tofile(value_file)
        indptr = np.zeros(self._num_nodes + 1, dtype=np.int64)
        np.cumsum(degrees, out=indptr[1:])
        indices = np.memmap(path, dtype=kind, mode="r") if indptr[-1] else np.zeros(0, dtype=kind)
        report = EdgeReport(
            input_edges=self.spilled,
            self_loops=loops,
            duplicates=self.spilled - loops - forward,
            one_way=both - forward,
            undirected_edges=both // 2,
            symmetrised=not self._directed,
        )
        csr = self._with_ways(CSR(indptr, np.asarray(indices)))
        return SortedEdges(csr, report, self._mapped("entry-values.bin"))

    def _with_ways(self, csr: CSR) -> CSR:
        """The structure with the directions that the source lists, if its edges have any."""
        if self._directed or not csr.num_edges:
            return csr
        ways = np.asarray(np.memmap(self._directory / "ways.bin", dtype=np.uint8, mode="r"))
        return csr if is_undirected(csr, ways) else replace(csr, ways=ways)

    def _mapped(self, name: str) -> Values | None:
        path = self._directory / name
        if not self._num_values:
            return None
        if not path.stat().st_size:
            return np.zeros((0, self._num_values), dtype=np.float32)
        return np.asarray(np.memmap(path, dtype=np.float32, mode="r").reshape(-1, self._num_values))

    def _ranges(self) -> tuple[NDArray[np.int64], int]:
        """Ranges of nodes with few enough edges that each range fits in memory."""
        degrees, loops = np.zeros(self._num_nodes, dtype=np.int64), 0
        for pairs in self._chunks():
            degrees += np.bincount(pairs.reshape(-1), minlength=self._num_nodes)
            loops += int((pairs[:, 0] == pairs[:, 1]).sum())
        share = np.cumsum(degrees) // max(1, self._memory_edges // 2)
        starts = np.flatnonzero(np.diff(share, prepend=-1))
        return np.unique(np.concatenate([[0], starts, [self._num_nodes]])), loops

    def _partition(self, bounds: NDArray[np.int64]) -> None:
        """Write every edge, and its reverse, to the file of its start; reverses are marked.

        If edges have values, the number of the edge is written with it.
        """
        files = [self._range_path(number).open("wb") for number in range(len(bounds) - 1)]
        first = 0
        try:
            for pairs in self._chunks():
                numbers = np.arange(first, first + len(pairs))
                first += len(pairs)
                kept = pairs[:, 0] != pairs[:, 1]
                pairs, numbers = pairs[kept], numbers[kept]
                marked = np.concatenate([pairs * (1, 2), pairs[:, ::-1] * (1, 2) + (0, 1)])
                if self._num_values:
                    marked = np.column_stack([marked, np.concatenate([numbers, numbers])])
                place = np.searchsorted(bounds, marked[:, 0], side="right") - 1
                marked = marked[np.argsort(place, kind="stable")]
                ends = np.cumsum(np.bincount(place, minlength=len(files)))
                for file, part in zip(files, np.split(marked, ends[:-1]), strict=True):
                    part.tofile(file)
        finally:
            for file in files:
                file.close()

    def _sort_range(self, number: int, low: int) -> SortedRange:
        path = self._range_path(number)
        table = np.fromfile(path, dtype=_PAIR).reshape(-1, 3 if self._num_values else 2)
        path.unlink()
        raw = (table[:, 0] - low) * (2 * self._num_nodes) + table[:, 1]
        keys = distinct(raw)
        one_way = keys[keys % 2 == 0] >> 1
        first = np.flatnonzero(np.diff(keys >> 1, prepend=-1))
        both = keys[first] >> 1
        # Even keys run as listed, odd ones in reverse.
        marks = (1 + keys % 2).astype(np.uint8)
        ways = np.add.reduceat(marks, first, dtype=np.uint8) if first.size else marks
        chosen = one_way if self._directed else both
        origins = np.zeros(0, dtype=np.int64)
        if self._num_values:
            # Marks sort an edge before the reverse of another; equal keys keep the order of the source.
            order = np.argsort(raw, kind="stable")
            origins = table[order[np.searchsorted(raw[order] >> 1, chosen)], 2]
        rows = chosen // self._num_nodes
        columns = chosen - rows * self._num_nodes
        return SortedRange(rows + low, columns, origins, ways, len(one_way), len(both))

    def _range_path(self, number: int) -> Path:
        return self._directory / f"range-{number:05d}.bin"
