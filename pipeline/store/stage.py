"""Resumable work on a store: scratch files that survive a kill, results that appear all at once."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pydantic import BaseModel

from pipeline.runtime.locks import hold_directory
from pipeline.storage.files import (
    TEMPORARY_SUFFIX,
    CorruptFileError,
    atomic_file,
    file_sha256,
    read_arrow,
    sync_directory,
    text_sha256,
    write_arrow,
)
from pipeline.store.manifest import FileEntry, Manifest, StageEntry, StageTiming, StoreError, is_running

WORKSPACE = ".partial"
_DIGEST_SUFFIX = ".sha256"


class WritableStore(Protocol):
    """What a stage requires of the store that it runs in."""

    path: Path
    manifest: Manifest

    def table(self, name: str) -> pa.Table: ...

    def save_manifest(self, manifest: Manifest) -> None: ...

    def record_timing(self, stage: str, timing: StageTiming) -> None: ...


class Stage:
    """One stage of a store while it runs.

    Results (`write_table`) and scratch files (`write_scratch`) are kept in a workspace named after the
    parameters, so that runs with different parameters never mix; `commit` moves the results into the
    store, records them in the manifest, and clears the workspace.
    """

    def __init__(self, store: WritableStore, name: str, entry: StageEntry, done: bool) -> None:
        self.name = name
        self.done = done
        self._store = store
        self._entry = entry
        self._start = time.monotonic()
        self._measured: dict[str, int] = {}
        identity = text_sha256({"parameters": entry.parameters, "requires": entry.requires})
        self.workspace = store.path / WORKSPACE / f"{name}-{identity[:16]}"
        if not done:
            self._prepare()

    def existing(self, name: str) -> bool:
        """Whether an earlier run, or this one, wrote the file completely; a damaged one is removed."""
        path = self._place(name)
        digest = path.with_name(path.name + _DIGEST_SUFFIX)
        if not (path.is_file() and digest.is_file()):
            return False
        if digest.read_text().strip() == file_sha256(path):
            return True
        self.discard(name)
        return False

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a result; the manifest lists it as `<stage>/<name>` after `commit`."""
        self._write("results", name, table)

    def write_scratch(self, name: str, table: pa.Table) -> None:
        """Write an intermediate file, removed by `commit`."""
        self._write("scratch", name, table)

    def read(self, name: str) -> pa.Table:
        """Read a result or scratch file of this stage, checked against its digest."""
        if not self.existing(name):
            raise CorruptFileError(f"Expected '{self._place(name)}' to be whole (got none, or a changed one)")
        return read_arrow(self._place(name))

    def read_input(self, name: str) -> pa.Table:
        """Read a file that an earlier stage wrote, by its path in the store."""
        return self._store.table(name)

    def discard(self, name: str) -> None:
        """Delete a file of the workspace, if it is there."""
        path = self._place(name)
        path.with_name(path.name + _DIGEST_SUFFIX).unlink(missing_ok=True)
        path.unlink(missing_ok=True)

    def scratch_names(self) -> list[str]:
        """The complete scratch files, sorted."""
        root = self.workspace / "scratch"
        names = sorted(str(path.relative_to(root)) for path in root.rglob("*") if _is_data(path))
        return [name for name in names if self.existing(name)]

    def measure(self, *, batches: int, resumed_batches: int, worker_peak_memory_bytes: int) -> None:
        """Record what workers did, for the timings of this stage."""
        self._measured = {
            "batches": batches,
            "resumed_batches": resumed_batches,
            "worker_peak_memory_bytes": worker_peak_memory_bytes,
        }

    def commit(self, summary: BaseModel | None = None) -> None:
        """Make the results part of the store.

        Args:
            summary: Results worth keeping in the manifest; the same for the same input.
        """
        noted = {} if summary is None else summary.model_dump(mode="json", exclude_unset=True)
        entry = self._entry.model_copy(update={"summary": noted})
        self._store.save_manifest(self._store.manifest.with_stage(self.name, entry, self._place_results()))
        timing = StageTiming.since(self._start).model_copy(update=self._measured)
        self._store.record_timing(self.name, timing)
        self._clear()
        self.done = True

    def _place_results(self) -> dict[str, FileEntry]:
        """Put the results where the manifest will list them."""
        root = self.workspace / "results"
        names = sorted(str(path.relative_to(root)) for path in root.rglob("*") if _is_data(path))
        return {
            f"{self.name}/{name}": self._move(root / name, self._store.path / self.name / name)
            for name in names
        }

    def _write(self, kind: str, name: str, table: pa.Table) -> None:
        path = self.workspace / kind / name
        digest = write_arrow(path, table)
        with atomic_file(path.with_name(path.name + _DIGEST_SUFFIX)) as file:
            file.write(digest.encode())

    def _place(self, name: str) -> Path:
        result = self.workspace / "results" / name
        return result if result.exists() else self.workspace / "scratch" / name

    def _prepare(self) -> None:
        """Remove leftovers of runs with other parameters, and half-written files."""
        root = self._store.path / WORKSPACE
        for other in root.glob(f"{self.name}-*"):
            if other != self.workspace:
                shutil.rmtree(other)
        for half in root.rglob(f"*{TEMPORARY_SUFFIX}"):
            half.unlink()
        self.workspace.mkdir(parents=True, exist_ok=True)

    def _move(self, path: Path, target: Path) -> FileEntry:
        digest = path.with_name(path.name + _DIGEST_SUFFIX).read_text().strip()
        rows = read_arrow(path).num_rows
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
        sync_directory(target.parent)
        return FileEntry(stage=self.name, sha256=digest, bytes=target.stat().st_size, rows=rows)

    def _clear(self) -> None:
        shutil.rmtree(self.workspace)
        if not any(self.workspace.parent.iterdir()):
            self.workspace.parent.rmdir()


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Hold the lock of a store's only writer; it ends with the process, however that ends.

    Raises:
        StoreError: If another process holds it.
    """
    with hold_directory(path, wait=False) as held:
        if not held:
            raise StoreError(f"Expected no other writer in '{path}' (got one): wait for it to end")
        yield


def _is_data(path: Path) -> bool:
    return path.is_file() and path.suffix not in (_DIGEST_SUFFIX, TEMPORARY_SUFFIX)


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """A directory that takes the name `path` if the block succeeds, and is removed otherwise.

    Raises:
        FileExistsError: If another process created it in the meantime.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.*.building"):
        if not is_running(int(stale.name.split(".")[-2])):
            shutil.rmtree(stale, ignore_errors=True)
    building = path.with_name(f".{path.name}.{os.getpid()}.building")
    building.mkdir()
    try:
        yield building
        try:
            building.replace(path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            raise FileExistsError(error.errno, "another process created it", str(path)) from None
    finally:
        shutil.rmtree(building, ignore_errors=True)
