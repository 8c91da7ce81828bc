"""A graph store in an object store: the same files under the same names, read through a cache on each node.

Nothing is kept on one machine alone: a stage's finished parts are stored next to the graph store, each with
a note that holds its digest and is written after it, so that a killed run continues on any machine.
"""

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from pipeline.storage.files import CorruptFileError, parse_sealed_json, read_arrow, seal_json, write_arrow
from pipeline.storage.object_store import Remote
from pipeline.store.arrays import CollectionArrays, GraphArrays
from pipeline.store.graph_store import INGEST, GraphStore
from pipeline.store.manifest import (
    MANIFEST_NAME,
    TIMINGS_NAME,
    FileEntry,
    Manifest,
    StageEntry,
    StageTiming,
    StoreError,
    describe_graph,
    parse_manifest,
    parse_timings,
)
from pipeline.store.stage import WORKSPACE, Stage, lock_directory

_NOTE_SUFFIX = ".json"
#: A file may be dropped from the cache between looking it up and mapping it.
_ATTEMPTS = 3


class RemoteStore(GraphStore):
    """A store at a URI.

    Storage has no locks: across machines it is up to the user to have only one writer at a time. A manifest
    that somebody else has changed in the meantime is not overwritten.
    """

    def __init__(self, remote: Remote, manifest: Manifest, text: bytes) -> None:
        super().__init__(_work_directory(remote), manifest)
        self.place = self.remote = remote
        self._text = text

    @classmethod
    def load(cls, remote: Remote) -> "RemoteStore":
        """Read the manifest at `remote`."""
        text = (remote / MANIFEST_NAME).read()
        if text is None:
            raise StoreError(f"Expected '{remote}' to be a graph store (got no '{MANIFEST_NAME}' in it)")
        return cls(remote, parse_manifest(text, str(remote)), text)

    @classmethod
    def write(cls, remote: Remote, graph: GraphArrays | CollectionArrays, entry: StageEntry) -> "RemoteStore":
        """Upload a new store, its manifest last."""
        notes = remote / WORKSPACE / INGEST
        files = {
            name: _put_table(remote / name, notes / (name + _NOTE_SUFFIX), INGEST, table)
            for name, table in graph.tables().items()
        }
        manifest = describe_graph(graph).with_stage(INGEST, entry, files)
        (remote / MANIFEST_NAME).write(seal_json(manifest.model_dump(mode="json")))
        notes.delete()
        return cls.load(remote)

    def table(self, name: str) -> pa.Table:
        for _ in range(_ATTEMPTS - 1):
            try:
                return super().table(name)
            except FileNotFoundError:
                continue
        return super().table(name)

    def locate(self, name: str) -> Path:
        entry = self._entry(name)
        return (self.remote / name).fetch(entry.sha256, entry.bytes)

    def timings(self) -> dict[str, StageTiming]:
        text = (self.remote / TIMINGS_NAME).read()
        return {} if text is None else parse_timings(parse_sealed_json(text, f"{self.remote}/{TIMINGS_NAME}"))

    def save_manifest(self, manifest: Manifest) -> None:
        if (self.remote / MANIFEST_NAME).read() != self._text:
            raise StoreError(f"Expected no other writer in '{self.remote}' (got one): wait for it to end")
        self._text = seal_json(manifest.model_dump(mode="json"))
        (self.remote / MANIFEST_NAME).write(self._text)
        self.manifest = manifest

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        with lock_directory(self.path):
            yield

    def _reread(self) -> Manifest:
        latest = RemoteStore.load(self.remote)
        self._text = latest._text
        return latest.manifest

    def _stage_type(self) -> type[Stage]:
        return _RemoteStage

    def _delete(self, name: str) -> None:
        (self.remote / name).delete()

    def _write_timings(self, timings: Mapping[str, object]) -> None:
        (self.remote / TIMINGS_NAME).write(seal_json(timings))


class _RemoteStage(Stage):
    """A stage whose parts are uploaded as they are finished, by whichever node makes them."""

    _store: RemoteStore

    def existing(self, name: str) -> bool:
        """Whether the file was uploaded completely; a damaged scratch file is removed."""
        if self._note("results", name) is not None:
            return True
        if self._note("scratch", name) is None:
            return False
        try:
            self.read(name)
        except CorruptFileError:
            self.discard(name)
            return False
        return True

    def read(self, name: str) -> pa.Table:
        for kind in ("results", "scratch"):
            note = self._note(kind, name)
            if note is not None:
                return read_arrow(self._data(kind, name).fetch(note.sha256, note.bytes))
        raise CorruptFileError(f"Expected '{self._data('scratch', name)}' to be whole (got none)")

    def discard(self, name: str) -> None:
        for kind in ("results", "scratch"):
            if self._note(kind, name) is not None:
                (self._partial / kind / (name + _NOTE_SUFFIX)).delete()
                self._data(kind, name).delete()

    def scratch_names(self) -> list[str]:
        names = (self._partial / "scratch").names()
        finished = [name.removesuffix(_NOTE_SUFFIX) for name in names if name.endswith(_NOTE_SUFFIX)]
        return [name for name in finished if self.existing(name)]

    @property
    def _partial(self) -> Remote:
        return self._store.remote / WORKSPACE / self.workspace.name

    def _data(self, kind: str, name: str) -> Remote:
        # Results are uploaded to their final place: nothing looks there until the manifest lists them.
        return self._store.remote / self.name / name if kind == "results" else self._partial / kind / name

    def _note(self, kind: str, name: str) -> FileEntry | None:
        text = (self._partial / kind / (name + _NOTE_SUFFIX)).read()
        return None if text is None else FileEntry.model_validate_json(text)

    def _write(self, kind: str, name: str, table: pa.Table) -> None:
        _put_table(self._data(kind, name), self._partial / kind / (name + _NOTE_SUFFIX), self.name, table)

    def _prepare(self) -> None:
        root = self._store.remote / WORKSPACE
        others = {name.partition("/")[0] for name in root.names()} - {self.workspace.name}
        for other in sorted(others):
            if other.startswith(f"{self.name}-"):
                (root / other).delete()
        self.workspace.mkdir(parents=True, exist_ok=True)

    def _place_results(self) -> dict[str, FileEntry]:
        root = self._partial / "results"
        texts = {name.removesuffix(_NOTE_SUFFIX): (root / name).read() for name in root.names()}
        return {
            f"{self.name}/{name}": FileEntry.model_validate(json.loads(text))
            for name, text in texts.items()
            if text is not None
        }

    def _clear(self) -> None:
        self._partial.delete()
        shutil.rmtree(self.workspace, ignore_errors=True)


def _put_table(target: Remote, note: Remote, stage: str, table: pa.Table) -> FileEntry:
    """Write a table into the cache and upload it with its note, unless the note says it is already there."""
    scratch = target.cache.directory / "work" / f"{uuid.uuid4().hex}.arrow"
    sha256 = write_arrow(scratch, table)
    entry = FileEntry(stage=stage, sha256=sha256, bytes=scratch.stat().st_size, rows=table.num_rows)
    content = entry.model_dump_json().encode()
    if note.read() != content:
        target.upload(scratch)
        note.write(content)
    target.cache.adopt(scratch, sha256)
    return entry


def _work_directory(remote: Remote) -> Path:
    """Where this machine keeps scratch files of a remote store, and its lock."""
    name = hashlib.sha256(str(remote).encode()).hexdigest()[:16]
    return remote.cache.directory / "work" / name
