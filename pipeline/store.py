"""The graph store: memory-mapped Arrow files under one manifest that is always written last."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, JsonValue

from pipeline.arrays import CSR, Floats, GraphArrays, Integers
from pipeline.files import column_array, read_arrow, read_sealed_json, write_arrow
from pipeline.manifest import (
    TIMINGS_NAME,
    FileEntry,
    Manifest,
    StageEntry,
    StoreError,
    describe_difference,
    is_running,
    read_manifest,
    verify_file,
)
from pipeline.stages import Stage, lock_directory

__all__ = ["CSR", "GraphArrays", "GraphStore", "Manifest", "Stage", "StoreError", "read_arrow", "write_arrow"]

INGEST = "ingest"


class GraphStore:
    """A store opened for reading; each file is verified before its first use in a process."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest

    @classmethod
    def open(cls, path: Path) -> "GraphStore":
        """Open the store at `path`.

        Raises:
            StoreError: If there is none, or it has another schema version.
            CorruptFileError: If the manifest was changed.
        """
        root = Path(path).absolute()
        return cls(root, read_manifest(root))

    @classmethod
    def find(cls, path: Path, parameters: BaseModel) -> "GraphStore | None":
        """The store at `path` if it was ingested with `parameters`; None if nothing is there yet.

        Raises:
            StoreError: If something else is there.
        """
        root = Path(path).absolute()
        if not root.exists() or (root.is_dir() and not any(root.iterdir())):
            return None
        store = cls.open(root)
        old, new = store.manifest.stages[INGEST].parameters, parameters.model_dump(mode="json")
        if old != new:
            raise StoreError(
                f"Expected '{root}' to hold the graph asked for "
                f"(got another: {describe_difference(old, new)}): choose another store or delete this one"
            )
        return store

    @classmethod
    def create(
        cls,
        path: Path,
        graph: GraphArrays,
        parameters: BaseModel,
        summary: Mapping[str, JsonValue] | None = None,
    ) -> "GraphStore":
        """Write `graph` as a new store; it appears at `path` only when it is complete.

        Args:
            path: Directory of the store. A store with the same parameters there is returned as it is.
            graph: The cleaned graph.
            parameters: What decided its content: source, seeds, digests of the source's files.
            summary: The report of the cleaning.

        Raises:
            StoreError: If a store with other parameters, or anything else, is at `path`.
        """
        found = cls.find(path, parameters)
        if found is not None:
            return found
        root = Path(path).absolute()
        with new_directory(root) as building:
            tables = graph.tables()
            files = {name: write_entry(building, INGEST, name, table) for name, table in tables.items()}
            entry = StageEntry(parameters=parameters.model_dump(mode="json"), summary=dict(summary or {}))
            manifest = describe_graph(graph).with_stage(INGEST, entry, files)
            manifest.write(building)
        return cls.open(root)

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def num_nodes(self) -> int:
        return self.manifest.num_nodes

    @property
    def directed(self) -> bool:
        return self.manifest.directed

    @property
    def num_splits(self) -> int:
        return self.manifest.num_splits

    def has(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return stage in self.manifest.stages

    def names(self, stage: str) -> list[str]:
        """The files a stage wrote, sorted, relative to the store."""
        return sorted(name for name, entry in self.manifest.files.items() if entry.stage == stage)

    def table(self, name: str) -> pa.Table:
        """A verified, memory-mapped table by its path in the store.

        Raises:
            StoreError: If the manifest does not list it.
            CorruptFileError: If its bytes are not the recorded ones.
        """
        entry = self.manifest.files.get(name)
        if entry is None:
            raise StoreError(f"Expected the store '{self.path}' to list '{name}' (got no such file)")
        verify_file(self.path, name, entry)
        return read_arrow(self.path / name)

    def array(self, name: str, column: str) -> NDArray[np.generic]:
        """A column of a table as a read-only array, without copying."""
        return column_array(self.table(name), column)

    def verify(self) -> None:
        """Compare every file with the manifest, and the timings with their own digest."""
        for name, entry in self.manifest.files.items():
            verify_file(self.path, name, entry)
        self.timings()

    def csr(self) -> CSR:
        """The adjacency structure: both directions of every edge unless the store is directed."""
        indices = self.array("edges/indices.arrow", "indices")
        return CSR(
            indptr=cast(Integers, self.array("edges/indptr.arrow", "indptr")),
            indices=cast("NDArray[np.int32]", indices),
        )

    def features(self) -> Floats:
        """Node features [n, d]."""
        if not self.manifest.num_features:
            return np.zeros((self.num_nodes, 0), dtype=np.float32)
        return cast(Floats, self.array("nodes/features.arrow", "features"))

    def labels(self) -> Integers:
        """Class of every node, −1 where unknown."""
        return cast(Integers, self.array("nodes/labels.arrow", "label"))

    def split(self, index: int = 0) -> NDArray[np.int8]:
        """Part of every node: 0 train, 1 validation, 2 test, −1 none."""
        if not 0 <= index < self.num_splits:
            raise StoreError(
                f"Expected 'split' to be below {self.num_splits}, the number of splits in '{self.path}' "
                f"(got {index})"
            )
        return cast("NDArray[np.int8]", self.array("nodes/splits.arrow", f"split_{index}"))

    def ids(self) -> pa.ChunkedArray | None:
        """The source's own node names, or None where they are 0…n−1."""
        name = "nodes/ids.arrow"
        return self.table(name).column("id") if name in self.manifest.files else None

    def positions(self) -> Floats:
        """Standardised position columns [n, P]; `position_columns` names them."""
        return cast(Floats, self.array("positions/columns.arrow", "columns"))

    @property
    def position_columns(self) -> tuple[str, ...]:
        """Names of the columns of `positions`."""
        return tuple(cast("list[str]", self._stage("positions").summary["columns"]))

    def approximate_positions(self) -> NDArray[np.float64]:
        """r_A, one number a node, as solved."""
        return cast("NDArray[np.float64]", self.array("positions/positions.arrow", "r_A"))

    def profile(self) -> NDArray[np.int32]:
        """Distance profile [n, K + 1]: column k counts the nodes at k hops."""
        return cast("NDArray[np.int32]", self.array("positions/profile.arrow", "profile"))

    def timings(self) -> dict[str, object]:
        """Seconds and peak memory of every stage that ran here."""
        path = self.path / TIMINGS_NAME
        return read_sealed_json(path) if path.exists() else {}

    @contextmanager
    def begin(
        self,
        stage: str,
        parameters: BaseModel,
        *,
        requires: tuple[str, ...] = (),
        replace: bool = False,
    ) -> Iterator[Stage]:
        """Run a stage: `with store.begin("positions", parameters) as stage: if stage.done: return …`.

        The stage is done at once if it finished with the same parameters on the same input before.
        Work that an earlier, killed run left behind is found through `stage.existing`.

        Args:
            stage: Name of the stage and of its directory in the store.
            parameters: Everything that decides the stage's files.
            requires: Stages whose files it reads, besides the graph itself.
            replace: Drop a result with other parameters, and what was built on it, instead of refusing.

        Raises:
            StoreError: If it finished with other parameters, a required stage is missing, or another
                process is writing to the store.
        """
        with lock_directory(self.path):
            self.manifest = read_manifest(self.path)
            upstream = {name: self._required_digest(stage, name) for name in (INGEST, *requires)}
            entry = StageEntry(parameters=parameters.model_dump(mode="json"), requires=upstream)
            done = self._is_done(stage, entry, replace)
            yield Stage(self, stage, entry, done)

    def _required_digest(self, stage: str, required: str) -> str:
        if required not in self.manifest.stages:
            raise StoreError(f"Expected stage '{required}' before '{stage}' in '{self.path}' (got none)")
        return self.manifest.stage_digest(required)

    def _is_done(self, stage: str, entry: StageEntry, replace: bool) -> bool:
        old = self.manifest.stages.get(stage)
        if old is None:
            return False
        if old.parameters == entry.parameters and old.requires == entry.requires:
            return True
        if not replace:
            difference = describe_difference(
                {**old.parameters, **old.requires}, {**entry.parameters, **entry.requires}
            )
            raise StoreError(
                f"Expected stage '{stage}' of '{self.path}' to have the parameters asked for "
                f"(got others: {difference}): choose another store, or replace the stage"
            )
        self._remove([stage, *self.manifest.dependents(stage)])
        return False

    def _remove(self, stages: list[str]) -> None:
        # First unlisted, then deleted: a kill in between leaves files that nobody reads.
        names = [name for stage in stages for name in self.names(stage)]
        self.manifest = self.manifest.without_stages(stages)
        self.manifest.write(self.path)
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def _stage(self, stage: str) -> StageEntry:
        if stage not in self.manifest.stages:
            raise StoreError(
                f"Expected the store '{self.path}' to have stage '{stage}' (got none): run `cocn preprocess`"
            )
        return self.manifest.stages[stage]


def describe_graph(graph: GraphArrays) -> Manifest:
    """The counts of a graph, with no files yet."""
    return Manifest(
        name=graph.name,
        num_nodes=graph.csr.num_nodes,
        num_edges=graph.csr.num_edges,
        num_features=graph.features.shape[1],
        num_classes=graph.num_classes,
        num_splits=len(graph.splits),
        directed=graph.directed,
    )


def write_entry(root: Path, stage: str, name: str, table: pa.Table) -> FileEntry:
    """Write one file of a store and describe it."""
    digest = write_arrow(root / name, table)
    return FileEntry(stage=stage, sha256=digest, bytes=(root / name).stat().st_size, rows=table.num_rows)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory that takes the name `path` when the block ends well, and vanishes otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.*.building"):
        if not is_running(int(stale.name.split(".")[-2])):
            shutil.rmtree(stale, ignore_errors=True)
    building = path.with_name(f".{path.name}.{os.getpid()}.building")
    building.mkdir()
    try:
        yield building
        building.replace(path)
    finally:
        shutil.rmtree(building, ignore_errors=True)
