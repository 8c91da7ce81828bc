"""Adjacency structures from more edges than fit in memory: sorted range by range, on disk."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from pipeline.store.arrays import CSR
from pipeline.store.cleaning import EdgeReport, clean_edges, distinct, index_type

# Edges kept in memory; sorting them takes about 60 bytes each.
MEMORY_EDGES = 2**24
CHUNK_EDGES = 2**20
PAIR = np.dtype(np.int64)

Pairs = NDArray[np.int64]


class EdgeSpill:
    """Collects edges, in memory first and in a file once they are too many, and sorts them.

    Args:
        directory: Where files go; they must outlive the structure, whose entries may be mapped from one.
        num_nodes: n.
        directed: Keep the direction of the edges.
        memory_edges: How many edges may be in memory at once.
    """

    def __init__(
        self, directory: Path, num_nodes: int, *, directed: bool = False, memory_edges: int = MEMORY_EDGES
    ) -> None:
        self._directory = directory
        self._num_nodes = num_nodes
        self._directed = directed
        self._memory_edges = memory_edges
        self._kept: list[Pairs] = []
        self._num_kept = 0
        self._file: BinaryIO | None = None
        self.spilled = 0

    def append(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Add edges."""
        self._kept.append(np.stack([sources, targets], axis=1))
        self._num_kept += len(sources)
        if self._num_kept > self._memory_edges:
            self._flush()

    def finish(self) -> tuple[CSR, EdgeReport]:
        """Sort everything into a structure."""
        if self._file is None:
            pairs = np.concatenate(self._kept) if self._kept else np.zeros((0, 2), dtype=np.int64)
            return clean_edges(pairs[:, 0], pairs[:, 1], self._num_nodes, directed=self._directed)
        self._flush()
        self._file.close()
        return self._sort()

    def _flush(self) -> None:
        if self._file is None:
            self._file = (self._directory / "edges.bin").open("wb")
        for pairs in self._kept:
            pairs.tofile(self._file)
            self.spilled += len(pairs)
        self._kept, self._num_kept = [], 0

    def _chunks(self) -> Iterator[Pairs]:
        with (self._directory / "edges.bin").open("rb") as file:
            while (values := np.fromfile(file, dtype=PAIR, count=2 * CHUNK_EDGES)).size:
                yield values.reshape(-1, 2)

    def _sort(self) -> tuple[CSR, EdgeReport]:
        bounds, loops = self._ranges()
        self._partition(bounds)
        (self._directory / "edges.bin").unlink()
        degrees = np.zeros(self._num_nodes, dtype=np.int64)
        forward = both = 0
        path, kind = self._directory / "indices.bin", index_type(self._num_nodes)
        with path.open("wb") as file:
            for number, (low, high) in enumerate(pairwise(bounds)):
                rows, columns, one_way, distinct = self._sort_range(number, int(low))
                forward, both = forward + one_way, both + distinct
                degrees[low:high] = np.bincount(rows - low, minlength=high - low)
                columns.astype(kind).tofile(file)
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
        return CSR(indptr, np.asarray(indices)), report

    def _ranges(self) -> tuple[NDArray[np.int64], int]:
        """Ranges of nodes with so few edges each that a range fits in memory."""
        degrees, loops = np.zeros(self._num_nodes, dtype=np.int64), 0
        for pairs in self._chunks():
            degrees += np.bincount(pairs.reshape(-1), minlength=self._num_nodes)
            loops += int((pairs[:, 0] == pairs[:, 1]).sum())
        share = np.cumsum(degrees) // max(1, self._memory_edges // 2)
        starts = np.flatnonzero(np.diff(share, prepend=-1))
        return np.unique(np.concatenate([[0], starts, [self._num_nodes]])), loops

    def _partition(self, bounds: NDArray[np.int64]) -> None:
        """Write every edge, and its reverse, to the file of its start; the reverse is marked."""
        files = [self._range_path(number).open("wb") for number in range(len(bounds) - 1)]
        try:
            for pairs in self._chunks():
                pairs = pairs[pairs[:, 0] != pairs[:, 1]]
                marked = np.concatenate([pairs * (1, 2), pairs[:, ::-1] * (1, 2) + (0, 1)])
                place = np.searchsorted(bounds, marked[:, 0], side="right") - 1
                marked = marked[np.argsort(place, kind="stable")]
                ends = np.cumsum(np.bincount(place, minlength=len(files)))
                for file, part in zip(files, np.split(marked, ends[:-1]), strict=True):
                    part.tofile(file)
        finally:
            for file in files:
                file.close()

    def _sort_range(self, number: int, low: int) -> tuple[Pairs, Pairs, int, int]:
        path = self._range_path(number)
        pairs = np.fromfile(path, dtype=PAIR).reshape(-1, 2)
        path.unlink()
        keys = distinct((pairs[:, 0] - low) * (2 * self._num_nodes) + pairs[:, 1])
        one_way = keys[keys % 2 == 0] >> 1
        both = distinct(keys >> 1)
        chosen = one_way if self._directed else both
        rows = chosen // self._num_nodes
        return rows + low, chosen - rows * self._num_nodes, len(one_way), len(both)

    def _range_path(self, number: int) -> Path:
        return self._directory / f"range-{number:05d}.bin"
