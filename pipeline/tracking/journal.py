"""A run's journal: records go to disk before they are sent, so that nothing waits for the tracker.

One file has one writer. Next to it is a small state file with what the tracker has acknowledged. A journal
that is closed and fully acknowledged is removed; one that is left over waits for `cocn track sync`.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Literal

from pipeline.runtime.locks import try_lock
from pipeline.storage.files import replace_text

SUFFIX = ".jsonl"
Kind = Literal[
    "create", "attach", "params", "tags", "metrics", "artifact", "text", "table", "dataset", "status"
]


@dataclass(frozen=True)
class Record:
    """One line of a journal, and the offset of the byte after it."""

    kind: Kind
    time: int
    values: Mapping[str, Any]
    step: int = 0
    end: int = 0


@dataclass(frozen=True)
class State:
    """What the tracker has acknowledged."""

    run_id: str | None = None
    """Id of the run, once it is known."""
    offset: int = 0
    """Bytes of the journal that have arrived."""


class Journal:
    """An append-only file of records, locked by the process that works on it."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock
        self._append = threading.Lock()
        self.state = read_state(path)

    @classmethod
    def open(cls, path: Path) -> "Journal | None":
        """Open or create a journal; None if another process, still alive, holds it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.open("ab")
        # Its owner may have finished and removed it between our opening and locking it.
        if not (try_lock(lock.fileno()) and path.exists()):
            lock.close()
            return None
        return cls(path, lock)

    def append(self, kind: Kind, time: int, values: Mapping[str, Any], step: int = 0) -> None:
        """Write a record; from then on it outlives the process."""
        line = json.dumps({"kind": kind, "time": time, "step": step, "values": values}) + "\n"
        with self._append:
            self._lock.write(line.encode())
            self._lock.flush()

    def pending(self) -> Iterator[Record]:
        """Records that have not been acknowledged, in order; an incomplete last line is left out."""
        with self.path.open("rb") as file:
            file.seek(self.state.offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                yield Record(**json.loads(line), end=file.tell())

    def acknowledge(self, record: Record) -> None:
        """Record that everything up to `record` has arrived."""
        self.update(offset=record.end)

    def update(self, **changes: Any) -> None:
        """Change the state and write it atomically."""
        self.state = replace(self.state, **changes)
        replace_text(state_path(self.path), json.dumps(asdict(self.state)))

    @property
    def empty(self) -> bool:
        """Whether everything in it has been acknowledged."""
        return self.state.offset >= os.fstat(self._lock.fileno()).st_size

    def records(self) -> list[Record]:
        """All records, acknowledged or not."""
        with self.path.open("rb") as file:
            return [Record(**json.loads(line)) for line in file if line.endswith(b"\n")]

    def close(self, keep: bool) -> None:
        """Release the file; remove it unless it must be kept for a later upload."""
        if not keep:
            state_path(self.path).unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        self._lock.close()


def state_path(journal: Path) -> Path:
    """The state file that belongs to a journal."""
    return journal.with_suffix(".state")


def read_state(journal: Path) -> State:
    """The content of a journal's state file; a new journal has none."""
    names = {field.name for field in fields(State)}
    try:
        found = json.loads(state_path(journal).read_text(encoding="utf-8"))
        return State(**{name: value for name, value in found.items() if name in names})
    except FileNotFoundError:
        return State()


def left_over(directory: Path) -> list[Path]:
    """Journals in a directory; names begin with the time of creation, so parents come before children."""
    return sorted(directory.glob(f"*{SUFFIX}"))
