"""Searches from many sources as Ray tasks over groups of batches; a killed run continues where it stopped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.engine.session import ray_session
from pipeline.positions.search import MAX_SOURCES, Searcher, Sums
from pipeline.runtime.memory import peak_memory
from pipeline.runtime.progress import progress
from pipeline.storage.files import column_array
from pipeline.store.arrays import CSR, Ids
from pipeline.store.stage import Stage

# Finished groups are merged once there are this many files: bounded disk, few rewrites.
_MERGE_FILES = 8
_MAX_GROUPS = 64
_MAX_RETRIES = 5
_GROUPS_KEY = b"groups"
_KINDS = ("counts", "moments", "weighted")


@dataclass(frozen=True)
class Search:
    """One search from many sources over a graph in locality order."""

    csr: CSR
    """Nodes renumbered so that neighbours are close together."""
    sources: Ids
    """In the new numbering, ascending: nearby sources share most of their sweep."""
    depth: int
    levels: int
    moments: bool
    weights: NDArray[np.int64] | None = None
    """One number per node; None to sum none."""

    @property
    def weighted(self) -> bool:
        return self.weights is not None

    def new_sums(self) -> Sums:
        return Sums.zeros(self.csr.num_nodes, self.levels, moments=self.moments, weighted=self.weighted)


@dataclass(frozen=True)
class Group:
    """Batches that one task runs, and one file records."""

    number: int
    start: int
    stop: int
    batch: int

    @property
    def batches(self) -> int:
        return -(-(self.stop - self.start) // self.batch)


@dataclass(frozen=True)
class GroupResult:
    sums: Sums
    depth: int
    peak_memory_bytes: int


@dataclass(frozen=True)
class SearchResult:
    sums: Sums
    depth: int
    batches: int
    resumed_batches: int
    peak_memory_bytes: int


def run_search(search: Search, name: str, batch: int, stage: Stage | None, parallel: bool) -> SearchResult:
    """Run all batches that no earlier run finished, and add everything up."""
    groups = plan_groups(len(search.sources), batch)
    record = _Record(name, search, stage)
    todo = [group for group in groups if group.number not in record.groups]
    total = sum(group.batches for group in groups)
    resumed = total - sum(group.batches for group in todo)
    with progress(name, total, "batches") as bar:
        bar.advance(resumed)
        for group, result in _results(search, todo, parallel):
            record.add(group, result)
            bar.advance(group.batches)
    return SearchResult(record.total(), record.depth, total, resumed, record.peak_memory_bytes)


def plan_groups(num_sources: int, batch: int) -> list[Group]:
    """Cut the sources into batches and those into at most 64 groups, independently of what runs them."""
    if not 0 < batch <= MAX_SOURCES:
        raise ValueError(f"Expected 'batch_sources' to be 1 to {MAX_SOURCES} (got {batch})")
    size = batch * max(1, -(-num_sources // (batch * _MAX_GROUPS)))
    starts = range(0, num_sources, size)
    return [
        Group(number, start, min(start + size, num_sources), batch) for number, start in enumerate(starts)
    ]


def run_group(search: Search, group: Group) -> GroupResult:
    """Run the batches of one group in this process."""
    searcher, sums, depth = Searcher(search.csr), search.new_sums(), 0
    for start in range(group.start, group.stop, group.batch):
        sources = search.sources[start : min(start + group.batch, group.stop)]
        weights = None if search.weights is None else search.weights[sources]
        depth = max(depth, searcher.sweep(sources, search.depth, sums, weights))
    return GroupResult(sums, depth, peak_memory())


class _Record:
    """The sums of finished groups, in memory or as scratch files of a stage."""

    def __init__(self, name: str, search: Search, stage: Stage | None) -> None:
        self._name = name
        self._search = search
        self._stage = stage
        self._files: list[str] = []
        self._memory = search.new_sums() if stage is None else None
        self.groups: set[int] = set()
        self.depth = 0
        self.peak_memory_bytes = 0
        if stage is not None:
            self._find(stage)

    def add(self, group: Group, result: GroupResult) -> None:
        self.groups.add(group.number)
        self.depth = max(self.depth, result.depth)
        self.peak_memory_bytes = max(self.peak_memory_bytes, result.peak_memory_bytes)
        if self._memory is not None:
            self._memory.add(result.sums)
            return
        self._write(f"group-{group.number:05d}", result.sums, [group.number], result.depth)
        if len(self._files) >= _MERGE_FILES:
            self._merge()

    def total(self) -> Sums:
        if self._memory is not None:
            return self._memory
        total = self._search.new_sums()
        for file in self._files:
            total.add(self._read(file)[0])
        return total

    def _find(self, stage: Stage) -> None:
        # The largest first: what a merged file holds is not read again from a file it was merged from.
        found = [
            (file, *self._read(file)) for file in stage.scratch_names() if file.startswith(f"{self._name}-")
        ]
        for file, _, groups, depth in sorted(found, key=lambda item: -len(item[2])):
            if self.groups & set(groups):
                stage.discard(file)
                continue
            self.groups |= set(groups)
            self.depth = max(self.depth, depth)
            self._files.append(file)

    def _merge(self) -> None:
        old, total = self._files, self.total()
        self._files = []
        self._write(f"merged-{len(self.groups):05d}", total, sorted(self.groups), self.depth)
        for file in old:
            self._use_stage().discard(file)

    def _write(self, suffix: str, sums: Sums, groups: Sequence[int], depth: int) -> None:
        columns: dict[str, Any] = {}
        for kind in _KINDS:
            columns |= {f"{kind}_{row}": pa.array(values) for row, values in enumerate(getattr(sums, kind))}
        metadata = {_GROUPS_KEY: ",".join(map(str, groups)).encode(), b"depth": str(depth).encode()}
        file = f"{self._name}-{suffix}.arrow"
        self._use_stage().write_scratch(file, pa.table(columns).replace_schema_metadata(metadata))
        self._files.append(file)

    def _read(self, file: str) -> tuple[Sums, list[int], int]:
        table = self._use_stage().read(file)
        metadata = table.schema.metadata
        sums = self._search.new_sums()
        for kind in _KINDS:
            for row, values in enumerate(getattr(sums, kind)):
                values[...] = column_array(table, f"{kind}_{row}")
        groups = [int(number) for number in metadata[_GROUPS_KEY].decode().split(",")]
        return sums, groups, int(metadata[b"depth"])

    def _use_stage(self) -> Stage:
        if self._stage is None:
            raise ValueError("Expected 'stage' to be given (got None)")
        return self._stage


def _results(search: Search, groups: Sequence[Group], parallel: bool) -> Iterator[tuple[Group, GroupResult]]:
    if not groups:
        return
    if not parallel:
        yield from ((group, run_group(search, group)) for group in groups)
        return
    with ray_session():
        yield from _ray_results(search, groups)


def _ray_results(search: Search, groups: Sequence[Group]) -> Iterator[tuple[Group, GroupResult]]:
    """Results as they arrive; only a few more tasks than CPUs are in flight, so results never pile up."""
    import ray

    task = ray.remote(num_cpus=1, max_retries=_MAX_RETRIES)(run_group)
    shared = ray.put(search)
    waiting = list(reversed(groups))
    running: dict[Any, Group] = {}
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    limit = 2 * max(1, int(resources.get("CPU", 1)))
    while waiting or running:
        while waiting and len(running) < limit:
            group = waiting.pop()
            running[task.remote(shared, group)] = group
        finished, _ = ray.wait(list(running))
        for reference in finished:
            yield running.pop(reference), ray.get(reference)
