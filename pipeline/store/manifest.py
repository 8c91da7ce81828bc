"""The record of everything a store holds: counts, parameters, stages and the digest of every file."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from pipeline.config.nested_keys import dotted_values
from pipeline.runtime.errors import UserError
from pipeline.runtime.memory import peak_memory
from pipeline.storage.files import (
    CorruptFileError,
    check_inside,
    parse_sealed_json,
    text_sha256,
    write_sealed_json,
)
from pipeline.store.arrays import Answer, CollectionArrays, GraphArrays, Task

_SCHEMA_VERSION = 1
MANIFEST_NAME = "manifest.json"
TIMINGS_NAME = "timings.json"


class StoreError(UserError):
    """A store that is absent, damaged, or not the requested one."""


class Entry(BaseModel):
    """A part of the manifest: never changed in place, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FileEntry(Entry):
    """One file: the stage that wrote it, its digest, its size and its rows."""

    stage: str
    sha256: str
    bytes: int
    rows: int


class StageEntry(Entry):
    """A finished stage: its parameters, what it was built on, what it found."""

    parameters: dict[str, JsonValue]
    requires: dict[str, str] = {}
    """Digests of the stages it read."""
    summary: dict[str, JsonValue] = {}
    """Results worth knowing without reading the files; the same for the same input."""


class StageTiming(BaseModel):
    """What a stage cost on the machine where it ran."""

    model_config = ConfigDict(frozen=True)

    seconds: float = 0.0
    peak_memory_bytes: int = 0
    """Peak memory of the process that ran the stage."""
    worker_peak_memory_bytes: int | None = None
    """Peak memory of the largest Ray worker; None without workers."""
    batches: int | None = None
    """Batches of sources that were searched."""
    resumed_batches: int | None = None
    """How many of them an earlier, killed run had finished."""

    @classmethod
    def since(cls, start: float) -> "StageTiming":
        """The timing of a stage of this process that began at `start` by `time.monotonic`."""
        return cls(seconds=round(time.monotonic() - start, 3), peak_memory_bytes=peak_memory())

    @property
    def most_memory_bytes(self) -> int:
        """Peak memory of the largest process."""
        return max(self.peak_memory_bytes, self.worker_peak_memory_bytes or 0)


class Manifest(Entry):
    """The content of `manifest.json`.

    Times and memory are in `timings.json`: they differ from run to run, and a store that is built
    twice from the same input has the same bytes in every other file.
    """

    schema_version: int = _SCHEMA_VERSION
    name: str
    num_nodes: int
    num_edges: int
    """Entries of the adjacency structure: an undirected edge counts twice."""
    num_features: int
    num_classes: int
    num_splits: int
    directed: bool
    task: Task = "node"
    """What the labels refer to."""
    num_graphs: int = 1
    """Graphs in a collection, whose nodes are stored one graph after another."""
    answer: Answer = "classes"
    """What is known of a node; `num_classes` counts labels or values then."""
    num_edge_features: int = 0
    """Numbers per edge, such as a weight; 0 for plain edges."""
    timings: str = TIMINGS_NAME
    files: dict[str, FileEntry] = {}
    stages: dict[str, StageEntry] = {}

    @property
    def parameters(self) -> dict[str, JsonValue]:
        """Parameters of every stage, named `stage.name`."""
        return {
            f"{stage}.{name}": value
            for stage, entry in self.stages.items()
            for name, value in entry.parameters.items()
        }

    @property
    def digest(self) -> str:
        """Identifies the store's content: equal digests mean equal files."""
        return text_sha256(self.model_dump(mode="json"))

    def stage_digest(self, stage: str) -> str:
        """Identifies one stage's parameters and files."""
        files = {name: entry.sha256 for name, entry in self.files.items() if entry.stage == stage}
        return text_sha256({"stage": self.stages[stage].model_dump(mode="json"), "files": files})

    def dependents(self, stage: str) -> list[str]:
        """The stages that were built on `stage`, directly or indirectly."""
        found = [stage]
        for current in found:
            users = [name for name, entry in self.stages.items() if current in entry.requires]
            found += [name for name in users if name not in found]
        return found[1:]

    def with_stage(self, stage: str, entry: StageEntry, files: Mapping[str, FileEntry]) -> "Manifest":
        """This manifest with one more finished stage."""
        return self.model_copy(
            update={"files": {**self.files, **files}, "stages": {**self.stages, stage: entry}}
        )

    def without_stages(self, stages: list[str]) -> "Manifest":
        """This manifest before `stages` ran."""
        return self.model_copy(
            update={
                "files": {name: entry for name, entry in self.files.items() if entry.stage not in stages},
                "stages": {name: entry for name, entry in self.stages.items() if name not in stages},
            }
        )

    def write(self, root: Path) -> None:
        """Replace the manifest of the store at `root`."""
        write_sealed_json(root / MANIFEST_NAME, self.model_dump(mode="json"))


def read_manifest(root: Path) -> Manifest:
    """Read and check the manifest of the store at `root`.

    Raises:
        StoreError: If there is no store, or one with a different schema version.
        CorruptFileError: If the manifest was changed since it was written.
    """
    path = root / MANIFEST_NAME
    if not path.is_file():
        raise StoreError(f"Expected '{root}' to be a graph store (got no '{MANIFEST_NAME}' in it)")
    manifest = parse_manifest(path.read_bytes(), str(root))
    for folder in {root / name.rpartition("/")[0] for name in manifest.files}:
        if folder != root and folder.is_symlink():
            raise CorruptFileError(f"Expected '{folder}' to be a directory of the store (got a link)")
    return manifest


def parse_manifest(text: bytes, root: str) -> Manifest:
    """The manifest of the store at `root` from its text."""
    content = parse_sealed_json(text, f"{root}/{MANIFEST_NAME}")
    if content.get("schema_version") != _SCHEMA_VERSION:
        raise StoreError(
            f"Expected the store '{root}' to have schema version {_SCHEMA_VERSION} "
            f"(got {content.get('schema_version')}): build it again with `cocn preprocess`"
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StoreError(f"Expected '{root}' to have a manifest (got {first['msg']} at '{place}')") from error
    check_inside(manifest.files, f"{root}/{MANIFEST_NAME}")
    return manifest


def parse_timings(content: Mapping[str, object]) -> dict[str, StageTiming]:
    """The timings of every stage, from the content of `timings.json`."""
    return {stage: StageTiming.model_validate(entry) for stage, entry in content.items()}


def describe_difference(old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]) -> str:
    """The parameters in which two runs differ: `truncate=4 stored, 6 requested`."""
    old, new = dict(dotted_values(old)), dict(dotted_values(new))
    differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return ", ".join(f"{key}={old.get(key)} stored, {new.get(key)} requested" for key in differing[:3])


def is_running(pid: int) -> bool:
    """Whether a process with that id is alive on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def describe_graph(graph: GraphArrays | CollectionArrays) -> Manifest:
    """The counts of a graph or a collection, with no files yet."""
    return Manifest(
        name=graph.name,
        num_nodes=graph.csr.num_nodes,
        num_edges=graph.csr.num_edges,
        num_features=graph.features.shape[1],
        num_classes=graph.num_classes,
        num_splits=len(graph.splits),
        directed=graph.directed,
        task=graph.task,
        num_graphs=graph.num_graphs,
        answer=graph.answer,
        num_edge_features=0 if graph.edge_values is None else graph.edge_values.shape[1],
    )


def other_parameters(
    place: object, stage: str, there: Mapping[str, JsonValue], asked: Mapping[str, JsonValue]
) -> StoreError:
    """The error for a stage that finished with parameters other than the requested ones."""
    return StoreError(
        f"Expected stage '{stage}' of '{place}' to have the requested parameters "
        f"(got others: {describe_difference(there, asked)}): choose another store, or replace the stage"
    )
