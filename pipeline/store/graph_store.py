"""The graph store: memory-mapped Arrow files under one manifest that is always written last."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from pipeline.storage.files import (
    CorruptFileError,
    column_array,
    read_arrow,
    read_sealed_json,
    verify_file,
    write_sealed_json,
)
from pipeline.storage.object_store import Remote
from pipeline.store.arrays import (
    CSR,
    EDGE_FEATURES_FILE,
    TARGETS_FILE,
    Floats,
    Integers,
    Pairs,
)
from pipeline.store.cleaning import symmetric
from pipeline.store.manifest import (
    TIMINGS_NAME,
    FileEntry,
    Manifest,
    StageEntry,
    StageTiming,
    StoreError,
    other_parameters,
    parse_timings,
    read_manifest,
)
from pipeline.store.stage import Stage, lock_directory

INGEST = "ingest"
WAYS_FILE = "edges/ways.arrow"
Summary = TypeVar("Summary", bound=BaseModel)


class PositionSummary(BaseModel):
    """What the manifest says about positions."""

    model_config = ConfigDict(frozen=True)

    columns: tuple[str, ...]
    """Names of the columns that heads may order the nodes by."""
    reason: str = ""
    """Exact profiles or landmarks, and why."""
    depth: int = 0
    """Hops that were searched."""
    num_sources: int = 0
    refinements: int = 0
    last_change: float = 0.0
    """The largest change in the last refinement, in standard deviations."""


class GraphStore:
    """A store opened for reading; each file is verified before its first use in a process.

    Attributes:
        path: Its directory on this machine; for a store in an object store, one for scratch files.
        place: Where other processes open it.
        manifest: What it holds.
    """

    place: Path | Remote

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.place = path
        self.manifest = manifest

    @property
    def digest(self) -> str:
        return self.manifest.digest

    @property
    def num_nodes(self) -> int:
        return self.manifest.num_nodes

    @property
    def is_collection(self) -> bool:
        """Whether it holds many graphs, each with its own label or pairs, instead of one."""
        return self.manifest.task != "node"

    @property
    def num_rows(self) -> int:
        """How many labels and splits there are: one per node, or per graph of a collection."""
        return self.manifest.num_graphs if self.is_collection else self.num_nodes

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
        return read_arrow(self.locate(name))

    def locate(self, name: str) -> Path:
        """A verified file on this machine by its path in the store."""
        entry = self._entry(name)
        verify_file(self.path / name, entry.sha256, entry.bytes)
        return self.path / name

    def array(self, name: str, column: str) -> NDArray[np.generic]:
        """A column of a table as a read-only array, without copying."""
        return column_array(self.table(name), column)

    def verify(self) -> None:
        """Check every file against the manifest, and the timings against their own digest."""
        for name in self.manifest.files:
            self.locate(name)
        self.timings()

    def csr(self) -> CSR:
        """The adjacency structure: both directions of every edge unless the store is directed."""
        indices = self.array("edges/indices.arrow", "indices")
        ways = self.array(WAYS_FILE, "ways") if WAYS_FILE in self.manifest.files else None
        return CSR(
            indptr=cast(Integers, self.array("edges/indptr.arrow", "indptr")),
            indices=cast("NDArray[np.int32]", indices),
            ways=cast("NDArray[np.uint8] | None", ways),
        )

    def undirected_csr(self) -> CSR:
        """The graph with both directions of every edge: distances and orders ignore direction."""
        return symmetric(self.csr()) if self.directed else self.csr()

    def edge_values(self) -> Floats | None:
        """Weights or features of the entries of `csr` [m, e]; None for plain edges."""
        if not self.manifest.num_edge_features:
            return None
        return cast(Floats, self.array(EDGE_FEATURES_FILE, "features"))

    def features(self) -> Floats:
        """Node features [n, d]."""
        if not self.manifest.num_features:
            return np.zeros((self.num_nodes, 0), dtype=np.float32)
        return cast(Floats, self.array("nodes/features.arrow", "features"))

    def labels(self) -> Integers:
        """Class of every node, or of every graph of a collection; −1 where unknown."""
        return cast(Integers, self.array(f"{self._rows}/labels.arrow", "label"))

    def targets(self) -> Floats | None:
        """Labels or values of every node [n, k], NaN where unknown; None where nodes have classes."""
        if self.manifest.answer == "classes":
            return None
        return cast(Floats, self.array(TARGETS_FILE, "targets"))

    def split(self, index: int = 0) -> NDArray[np.int8]:
        """Part of every node, or of every graph of a collection: 0 train, 1 validation, 2 test, −1 none."""
        if not 0 <= index < self.num_splits:
            raise StoreError(
                f"Expected 'split' to be below {self.num_splits}, the number of splits in '{self.place}' "
                f"(got {index})"
            )
        return cast("NDArray[np.int8]", self.array(f"{self._rows}/splits.arrow", f"split_{index}"))

    @property
    def _rows(self) -> str:
        return "graphs" if self.is_collection else "nodes"

    def graph_indptr(self) -> Integers:
        """Where the nodes of each graph of a collection begin, and where the last ones end [g + 1]."""
        if not self.is_collection:
            return np.array([0, self.num_nodes], dtype=np.int64)
        return cast(Integers, self.array("graphs/indptr.arrow", "indptr"))

    def pairs(self) -> Pairs:
        """The pairs that a collection for link prediction asks about."""
        table = self.table("pairs/pairs.arrow")
        ends = [column_array(table, name) for name in ("source", "target")]
        return Pairs(
            indptr=cast(Integers, self.array("pairs/indptr.arrow", "indptr")),
            ends=cast(Integers, np.stack(ends, axis=1)),
            labels=cast(Integers, column_array(table, "label")),
        )

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
        return self.summary("positions", PositionSummary).columns

    def summary(self, stage: str, kind: type[Summary]) -> Summary:
        """What a finished stage recorded in the manifest.

        Raises:
            StoreError: If the stage is not finished, or an earlier version recorded something else.
        """
        if stage not in self.manifest.stages:
            raise StoreError(
                f"Expected the store '{self.place}' to have stage '{stage}' (got none): run `cocn preprocess`"
            )
        try:
            return kind.model_validate(self.manifest.stages[stage].summary)
        except ValidationError as error:
            raise StoreError(
                f"Expected stage '{stage}' of '{self.place}' to be written by this version "
                f"(got {error.errors()[0]['msg']}): run `cocn preprocess --replace`"
            ) from error

    def approximate_positions(self) -> NDArray[np.float64]:
        """r_A as solved, one number per node."""
        return cast("NDArray[np.float64]", self.array("positions/positions.arrow", "r_A"))

    def profile(self) -> NDArray[np.int32]:
        """Distance profile [n, K + 1]: column k counts the nodes at k hops."""
        return cast("NDArray[np.int32]", self.array("positions/profile.arrow", "profile"))

    def timings(self) -> dict[str, StageTiming]:
        """Seconds and peak memory of every stage that ran here."""
        path = self.path / TIMINGS_NAME
        return parse_timings(read_sealed_json(path)) if path.exists() else {}

    def record_timing(self, stage: str, timing: StageTiming) -> None:
        """Keep the time and peak memory of a stage next to the manifest."""
        try:
            before = self.timings()
        except CorruptFileError:
            before = {}
        known = {**before, stage: timing}
        self._write_timings({name: entry.model_dump(exclude_none=True) for name, entry in known.items()})

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

        The stage is done immediately if it finished before with the same parameters on the same input.
        Work that an earlier, killed run left behind is found through `stage.existing`.

        Args:
            stage: Name of the stage and of its directory in the store.
            parameters: Everything that affects the stage's files.
            requires: Stages whose files it reads, in addition to the graph itself.
            replace: Drop a result with other parameters, and what was built on it, instead of refusing.

        Raises:
            StoreError: If it finished with other parameters, a required stage is missing, or another
                process is writing to the store.
        """
        with self._lock():
            self.manifest = self._reread()
            upstream = {name: self._required_digest(stage, name) for name in (INGEST, *requires)}
            entry = StageEntry(parameters=parameters.model_dump(mode="json"), requires=upstream)
            done = self._is_done(stage, entry, replace)
            yield self._stage_type()(self, stage, entry, done)

    def save_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        manifest.write(self.path)
        self.manifest = manifest

    def _required_digest(self, stage: str, required: str) -> str:
        if required not in self.manifest.stages:
            raise StoreError(f"Expected stage '{required}' before '{stage}' in '{self.place}' (got none)")
        return self.manifest.stage_digest(required)

    def _is_done(self, stage: str, entry: StageEntry, replace: bool) -> bool:
        old = self.manifest.stages.get(stage)
        if old is None:
            return False
        if old.parameters == entry.parameters and old.requires == entry.requires:
            return True
        if not replace:
            there, asked = {**old.parameters, **old.requires}, {**entry.parameters, **entry.requires}
            raise other_parameters(self.place, stage, there, asked)
        self._remove([stage, *self.manifest.dependents(stage)])
        return False

    def _remove(self, stages: list[str]) -> None:
        # First unlisted, then deleted: if killed in between, the leftover files are never read.
        names = [name for stage in stages for name in self.names(stage)]
        self.save_manifest(self.manifest.without_stages(stages))
        for name in names:
            self._delete(name)

    def _entry(self, name: str) -> FileEntry:
        entry = self.manifest.files.get(name)
        if entry is None:
            raise StoreError(f"Expected the store '{self.place}' to list '{name}' (got no such file)")
        return entry

    def _lock(self) -> AbstractContextManager[None]:
        return lock_directory(self.path)

    def _reread(self) -> Manifest:
        return read_manifest(self.path)

    def _stage_type(self) -> type[Stage]:
        return Stage

    def _delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def _write_timings(self, timings: Mapping[str, object]) -> None:
        write_sealed_json(self.path / TIMINGS_NAME, timings)
