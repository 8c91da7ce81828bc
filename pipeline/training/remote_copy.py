"""Copies of trainings in an object store: they can be continued from any machine.

A training's index is one object that holds its small files and the digests of its checkpoints. It is written
after them, so that a reader always finds a complete training.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config.locations import Uri
from pipeline.config.settings import StorageConfig
from pipeline.runtime.errors import UserError
from pipeline.runtime.locks import hold_directory
from pipeline.storage.files import (
    atomic_file,
    check_inside,
    file_sha256,
    parse_sealed_json,
    require_space,
    seal_json,
)
from pipeline.storage.object_store import Remote, resolve
from pipeline.training.checkpoint import find_checkpoint, latest_checkpoint, list_checkpoints, read_state
from pipeline.training.results import EPOCHS, RESULT

_INDEX = "training.json"
RUN_FILE = "run.json"
#: Small files, in the order of their writing.
_TEXTS = (RUN_FILE, EPOCHS, RESULT)


class Part(BaseModel):
    """A file of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sha256: str
    bytes: int


class Index(BaseModel):
    """The content of a copy."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int = -1
    """Steps of the newest checkpoint; −1 without one."""
    texts: dict[str, str] = {}
    parts: dict[str, Part] = {}
    """By `checkpoint/file`."""

    @property
    def progress(self) -> tuple[bool, int]:
        """How far the copy got, to be compared with others: larger is further."""
        return RESULT in self.texts, self.step

    @property
    def checkpoints(self) -> set[str]:
        return {name.partition("/")[0] for name in self.parts}


def read_index(remote: Remote) -> Index | None:
    """The index at `remote`; None if there is no training."""
    text = (remote / _INDEX).read()
    if text is None:
        return None
    index = Index.model_validate(parse_sealed_json(text, f"{remote}/{_INDEX}"))
    check_inside((*index.parts, *index.texts), f"{remote}/{_INDEX}")
    return index


def reconcile(directory: Path, remote: Remote) -> None:
    """Bring both to the state of the one that got further."""
    found = read_index(remote)
    if found is None or found.progress < _describe(directory).progress:
        push(directory, remote)
    else:
        pull(remote, directory)


def push(directory: Path, remote: Remote) -> None:
    """Upload a training; parts that are already there are left alone."""
    old, new = read_index(remote) or Index(), _describe(directory)
    for name, part in new.parts.items():
        if old.parts.get(name) != part:
            (remote / name).upload(directory / name)
    (remote / _INDEX).write(seal_json(new.model_dump(mode="json")))
    for name in sorted(old.checkpoints - new.checkpoints):
        (remote / name).delete()


def pull(remote: Remote, directory: Path) -> None:
    """Make a directory equal to the copy, if there is one; each part is checked against its digest."""
    with _one_at_a_time(directory):
        index = read_index(remote)
        if index is None:
            return
        for name in sorted(index.checkpoints):
            _pull_checkpoint(remote, directory, name, index)
        for path in (*list_checkpoints(directory, "last"), *list_checkpoints(directory, "best")):
            if path.name not in index.checkpoints:
                shutil.rmtree(path, ignore_errors=True)
        for name in _TEXTS:
            if name not in index.texts:
                (directory / name).unlink(missing_ok=True)
                continue
            with atomic_file(directory / name) as file:
                file.write(index.texts[name].encode())


def _describe(directory: Path) -> Index:
    """The index of a training on this machine."""
    last, best = latest_checkpoint(directory, "last"), latest_checkpoint(directory, "best")
    files = [file for path in (last, best) if path is not None for file in sorted(path.iterdir())]
    texts = {name: directory / name for name in _TEXTS}
    return Index(
        step=-1 if last is None else read_state(last).step,
        texts={name: path.read_text(encoding="utf-8") for name, path in texts.items() if path.exists()},
        parts={
            f"{file.parent.name}/{file.name}": Part(sha256=file_sha256(file), bytes=file.stat().st_size)
            for file in files
        },
    )


def open_checkpoint(place: Path | Uri | Remote, storage: StorageConfig | None = None) -> Path:
    """The checkpoint at a place, on this machine: a checkpoint, or the best one of a training.

    Raises:
        UserError: If there is none.
    """
    where = resolve(place, storage)
    if isinstance(where, Path):
        return find_checkpoint(where)
    name = hashlib.sha256(str(where).encode()).hexdigest()[:16]
    directory = where.cache.directory / "checkpoints" / name
    if read_index(where) is not None:
        pull(where, directory)
        return find_checkpoint(directory)
    training = Remote(where.uri.parent, where.storage)
    if read_index(training) is not None:
        pull(training, directory)
        return find_checkpoint(directory / where.name)
    raise UserError(f"Expected a checkpoint or a training with one at '{where}' (got none)")


def _pull_checkpoint(remote: Remote, directory: Path, name: str, index: Index) -> None:
    parts = {key.partition("/")[2]: part for key, part in index.parts.items() if key.startswith(f"{name}/")}
    final = directory / name
    if final.is_dir() and {path.name: file_sha256(path) for path in final.iterdir()} == {
        file: part.sha256 for file, part in parts.items()
    }:
        return
    require_space(directory, sum(part.bytes for part in parts.values()))
    building = directory / f".{name}.{os.getpid()}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    try:
        for file, part in parts.items():
            (remote / name / file).download(building / file, part.sha256, part.bytes)
        shutil.rmtree(final, ignore_errors=True)
        building.rename(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Let one rank of a node at a time into the block: the first fills the directory, the others find it
    done."""
    directory.mkdir(parents=True, exist_ok=True)
    with hold_directory(directory, wait=True):
        yield
