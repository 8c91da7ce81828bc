"""Logging to a run from any process, without ever waiting for the tracker.

Records go to a journal on disk and a thread sends them in batches. While the tracker is unreachable the
journal grows and training continues; what is left at the end waits for `cocn track sync`.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline.runtime.passwords import hide_passwords, without_password
from pipeline.tracking.journal import SUFFIX, Journal, Kind, Record
from pipeline.tracking.mlflow_store import PARENT_TAG, Point, TrackingStore

logger = logging.getLogger(__name__)

SEND_INTERVAL_SECONDS = 5.0
_LONGEST_INTERVAL_SECONDS = 30.0
_CLOSE_TIMEOUT_SECONDS = 15.0
_RECORDS_PER_BATCH = 200
_AWAY = "the tracker does not answer (%s); records wait in %s, 'cocn track sync' sends them"
_FULL = "records could not be written (%s) to %s; anything logged from here on may be lost"

# What this process has warned about, and trackers that did not answer the last time.
_warned: set[tuple[str, Path, str]] = set()
_silent: set[tuple[str, Path]] = set()


@dataclass(frozen=True)
class RunReference:
    """What another process needs to log to a run."""

    uri: str
    experiment: str
    key: str
    """Our own name for the run, known before any tracker has answered."""
    run_id: str | None
    """MLflow's id; None while the tracker has not been reached."""
    directory: Path
    """Where journals are kept."""
    artifacts: Path | None = None
    """Where artifacts are kept if no server keeps them."""


class NotCreatedError(Exception):
    """The run itself has not reached the tracker yet."""


class Tracker:
    """Logs to a run that another process created; only rank 0 needs one.

    Args:
        reference: The run, as passed on by its driver.
        system_metrics: Also log memory and load of the process, the processor and the GPU.
    """

    role = "worker"

    def __init__(self, reference: RunReference, system_metrics: bool = False) -> None:
        self.reference = reference
        self._store = TrackingStore(reference.uri, reference.artifacts)
        self._journal = self._open_journal()
        self._begin()
        self._system_metrics = system_metrics
        self._start = time.monotonic()
        self._sending = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_in_background, name="tracker", daemon=True)
        self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of a step; returns immediately."""
        self._append("metrics", {key: float(value) for key, value in metrics.items()}, step)

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log parameters; a parameter keeps its first value."""
        self._append("params", {key: str(value) for key, value in params.items()})

    def set_tags(self, tags: Mapping[str, object]) -> None:
        """Set tags, by which runs are searched."""
        self._append("tags", {key: str(value) for key, value in tags.items()})

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Store a file or a directory; it must stay where it is until it has been sent."""
        self._append("artifact", {"path": str(path.absolute()), "folder": folder})

    def log_table(self, columns: Mapping[str, Sequence[object]], name: str) -> None:
        """Store a table, by columns, that MLflow's pages show and compare between runs."""
        self._append(
            "table", {"columns": {key: list(values) for key, values in columns.items()}, "name": name}
        )

    def log_dataset(self, name: str, digest: str, source: str, profile: Mapping[str, object]) -> None:
        """Name the data that the run is trained on."""
        described = {"name": name, "digest": digest, "source": source, "profile": json.dumps(dict(profile))}
        self._append("dataset", described)

    def log_text(self, text: str, name: str) -> None:
        """Store a short text as a file of the run."""
        self._append("text", {"text": text, "name": name})

    def flush(self) -> bool:
        """Send everything now and wait for it; False if the tracker does not accept it."""
        with self._sending:
            try:
                send_journal(self._journal, self._store)
            except Exception as error:  # noqa: BLE001 - whatever a tracker does, training continues
                _silent.add(self._place)
                self._warn(_AWAY, error)
                return False
            _silent.discard(self._place)
            return True

    def close(self) -> None:
        """Send what is left, for a few seconds at most; the rest stays for `cocn track sync`."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(_CLOSE_TIMEOUT_SECONDS)
        if self._thread.is_alive():  # a tracker that hangs: the journal stays locked until this process ends
            return
        try:
            self._journal.close(keep=not self._journal.empty)
        except OSError as error:
            self._warn(_FULL, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> None:
        self._append("attach", self._identity())
        if self.reference.run_id is not None:
            self._journal.update(run_id=self.reference.run_id)

    def _identity(self) -> dict[str, Any]:
        reference = self.reference
        return {
            "uri": without_password(reference.uri),
            "experiment": reference.experiment,
            "key": reference.key,
            "artifacts": str(reference.artifacts) if reference.artifacts else None,
        }

    def _open_journal(self) -> Journal:
        # The time comes first, so that sorted names put parents before their children.
        name = f"{_now():013d}-{self.role}-{uuid.uuid4().hex}{SUFFIX}"
        journal = Journal.open(self.reference.directory / name)
        if journal is None:
            raise FileExistsError(f"Expected the new journal '{name}' to be free (got one in use)")
        return journal

    def _append(self, kind: Kind, values: Mapping[str, Any], step: int = 0) -> None:
        try:
            self._journal.append(kind, _now(), values, step)
        except OSError as error:
            self._warn(_FULL, error)

    def _send_in_background(self) -> None:
        interval = SEND_INTERVAL_SECONDS
        while not self._stop.wait(interval):
            if self._system_metrics:
                self.log(int(time.monotonic() - self._start), _sample_system())
            interval = SEND_INTERVAL_SECONDS if self.flush() else min(2 * interval, _LONGEST_INTERVAL_SECONDS)
        self.flush()

    @property
    def silent(self) -> bool:
        """Whether the tracker did not answer this process the last time."""
        return self._place in _silent

    @property
    def _place(self) -> tuple[str, Path]:
        return self.reference.uri, self.reference.directory

    def _warn(self, message: str, error: Exception) -> None:
        """Warn once per process, not for each run or attempt."""
        if (*self._place, message) not in _warned:
            _warned.add((*self._place, message))
            reason = (hide_passwords(str(error)).splitlines() or [type(error).__name__])[0][:200]
            logger.warning(message, reason, self.reference.directory)


def send_journal(journal: Journal, store: TrackingStore) -> None:
    """Send the content of a journal, in order; each record is acknowledged as it arrives.

    Raises:
        Exception: Whatever kept the tracker from accepting the next record.
    """
    for records in _batches(journal.pending()):
        try:
            _send(journal, store, records)
        except Exception as error:
            if not store.refuses_for_good(error):
                raise
            reason = hide_passwords(str(error))
            logger.warning("the tracker refused %s of '%s': %s", records[0].kind, journal.path.name, reason)
        journal.acknowledge(records[-1])


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Group neighbouring metrics; everything else stays single."""
    for together, group in groupby(records, key=lambda record: record.kind == "metrics"):
        while batch := list(islice(group, _RECORDS_PER_BATCH if together else 1)):
            yield batch


def _send(journal: Journal, store: TrackingStore, records: list[Record]) -> None:
    first = records[0]
    values = first.values
    match first.kind:
        case "create":
            journal.update(run_id=_create_run(journal, store, first))
        case "attach":
            run_id = journal.state.run_id or store.find_run(values["experiment"], values["key"])
            if run_id is None:
                raise NotCreatedError(f"run '{values['key']}' has not been created yet")
            journal.update(run_id=run_id)
        case "metrics":
            store.send_metrics(_run_id(journal), [point for record in records for point in _points(record)])
        case "params":
            store.send_params(_run_id(journal), values)
        case "tags":
            store.send_tags(_run_id(journal), values)
        case "status":
            store.set_status(_run_id(journal), values["status"], first.time)
        case _:
            _send_file(_run_id(journal), store, first)


def _send_file(run_id: str, store: TrackingStore, record: Record) -> None:
    values = record.values
    match record.kind:
        case "artifact":
            store.send_artifact(run_id, Path(values["path"]), values["folder"])
        case "text":
            store.send_text(run_id, values["text"], values["name"])
        case "table":
            store.send_table(run_id, values["columns"], values["name"])
        case "dataset":
            store.send_dataset(run_id, values)


def _create_run(journal: Journal, store: TrackingStore, record: Record) -> str:
    values = record.values
    # It may already exist: an answer was lost on the way, or a resumed training came first.
    if found := store.find_run(values["experiment"], values["key"]):
        return found
    tags = dict(values["tags"])
    if (parent := values["parent"]) is not None:
        parent_id = store.find_run(values["experiment"], parent)
        if parent_id is None:
            raise NotCreatedError(f"parent run '{parent}' has not been created yet")
        tags[PARENT_TAG] = parent_id
    return store.create_run(values["experiment"], values["name"], values["key"], record.time, tags)


def _run_id(journal: Journal) -> str:
    if journal.state.run_id is None:
        raise NotCreatedError(f"'{journal.path.name}' names no run")
    return journal.state.run_id


def _points(record: Record) -> list[Point]:
    return [Point(key, value, record.step, record.time) for key, value in record.values.items()]


def _sample_system() -> dict[str, float]:
    import psutil

    return {
        "system/cpu_utilization_percentage": psutil.cpu_percent(),
        "system/process_memory_megabytes": psutil.Process().memory_info().rss / 2**20,
        "system/memory_usage_percentage": psutil.virtual_memory().percent,
        **_sample_gpu(),
    }


def _sample_gpu() -> dict[str, float]:
    """Memory of this process's GPU, and its load if NVIDIA's library is installed; empty without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    free, total = torch.cuda.mem_get_info()
    found = {
        "system/gpu_0_memory_usage_megabytes": (total - free) / 2**20,
        "system/gpu_0_memory_usage_percentage": 100 * (1 - free / total),
    }
    with suppress(ImportError, RuntimeError):
        found["system/gpu_0_utilization_percentage"] = float(torch.cuda.utilization())
    return found


def _now() -> int:
    """Milliseconds since 1970, MLflow's clock."""
    return time.time_ns() // 1_000_000
