"""Runs: a parent for each command, a child for each model, seed and split.

The driver creates runs and decides how they end; `run.reference` is passed to the workers, where only rank 0
opens a `Tracker`. A run ends as FINISHED, FAILED or KILLED whatever happens to its process: an exception or
Ctrl-C ends it here, and one whose process is gone is ended by the next command or by `cocn track sync`.
"""

import logging
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import TracebackType

from pipeline.config.loading import Config, to_yaml
from pipeline.config.marks import decisive_settings
from pipeline.config.nested_keys import dotted_values
from pipeline.runtime.passwords import hide_passwords, without_password
from pipeline.runtime.provenance import device_name, library_versions, source_revision, user_name
from pipeline.storage.files import text_sha256
from pipeline.tracking.journal import Journal, Record, left_over
from pipeline.tracking.mlflow_store import Status, TrackingStore, tracking_uri
from pipeline.tracking.run_logger import NotCreatedError, RunReference, Tracker, send_journal

logger = logging.getLogger(__name__)

#: Prefix of the metrics with the seconds of a store's stages.
STAGE_PREFIX = "stage_seconds/"
JOURNALS = "journals"
ARTIFACTS = "artifacts"


class Run(Tracker):
    """A run created, and to be ended, by this process.

    Use it as a context manager: leaving the block ends the run, with FAILED after an exception and KILLED
    after an interruption, and ends its children the same way.
    """

    role = "driver"

    def __init__(
        self,
        reference: RunReference,
        name: str,
        tags: Mapping[str, str],
        parent: "Run | ParentRun | None" = None,
        resumed: bool = False,
    ) -> None:
        self.name = name
        self._tags = tags
        self._resumed = resumed
        self._parent = parent
        self._children: list[Run] = []
        self._status: Status = "RUNNING"
        super().__init__(reference)
        if not self.silent:
            self.flush()
        self.reference = replace(reference, run_id=self._journal.state.run_id)
        if parent is not None:
            parent._children.append(self)

    @property
    def run_id(self) -> str | None:
        """MLflow's id, once the tracker has answered."""
        return self._journal.state.run_id

    def log_config(self, config: Config) -> None:
        """Store the configuration as parameters and as the file `config.yaml`, without passwords."""
        uri = config.tracking.uri and without_password(config.tracking.uri)
        public = config.model_copy(update={"tracking": config.tracking.model_copy(update={"uri": uri})})
        self.log_params(flatten(public))
        self.log_text(to_yaml(public), "config.yaml")

    def finish(self, status: Status = "FINISHED") -> None:
        """End the run and every child still open; only the first call counts."""
        if self._status != "RUNNING":
            return
        self._status = status
        for child in self._children:
            child.finish(status)
        self._append("status", {"status": status})
        self.close()
        if self._parent is None and not self.silent:  # killed workers leave journals behind
            sync(self.reference.directory, self.reference.uri, only_its_own=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            reason = hide_passwords(str(error)).splitlines()
            self.set_tags({"cocn.error": f"{type(error).__name__}: {reason[0] if reason else ''}"})
        self.finish(_status_after(error))

    def _begin(self) -> None:
        if self.reference.run_id is not None:
            super()._begin()
        else:
            parent = self._parent.reference.key if self._parent is not None else None
            create = {"name": self.name, "tags": self._tags, "parent": parent}
            self._append("create", {**self._identity(), **create})
        if self._resumed:
            self._append("status", {"status": "RUNNING"})


@dataclass(frozen=True)
class ParentRun:
    """A parent created, and to be ended, by another process; children are started under it here."""

    reference: RunReference
    _children: list[Run] = field(default_factory=list, repr=False)


@dataclass(frozen=True)
class Earlier:
    """The run of an earlier attempt, which may not have reached the tracker yet."""

    run_id: str | None
    key: str


def start_parent(command: str, config: Config, *, resume: Earlier | None = None) -> Run:
    """Create the run of a command, or continue that of an earlier one.

    Args:
        command: The command's name: `demo`, `train`, `reproduce`.
        config: The resolved configuration; it becomes the run's parameters and its file `config.yaml`.
        resume: The run to continue instead of creating one.
    """
    directory = config.output.absolute() / JOURNALS
    uri = tracking_uri(config.tracking.uri, config.output)
    artifacts = config.output.absolute() / ARTIFACTS
    close_orphans(directory)
    key, run_id = (uuid.uuid4().hex, None) if resume is None else (resume.key, resume.run_id)
    reference = RunReference(uri, config.tracking.experiment, key, run_id, directory, artifacts)
    if resume is not None:
        # The end of a killed attempt must reach the tracker before this one's, or it would overwrite it.
        sync(directory, uri, only_its_own=True)
    tags = {"cocn.command": command, "cocn.role": "parent", **_origin()}
    run = Run(reference, command, tags, resumed=resume is not None)
    if resume is None:
        run.log_config(config)
    return run


def start_child(
    parent: Run | ParentRun,
    config: Config,
    *,
    model: str,
    dataset: str,
    seed: int,
    split: int,
    metric: str = "",
    variant: str = "",
    tags: Mapping[str, str] | None = None,
    resume: Earlier | None = None,
) -> Run:
    """Create the run of one training under a parent.

    Args:
        parent: The command's run.
        config: The configuration of this training.
        model: `sparse`, `segment`, or a baseline's name.
        dataset: The dataset's name.
        seed: Seed of the training.
        split: Index of the split.
        metric: Name of the metric that `val_metric` and `test_metric` hold: `roc_auc`, `accuracy`.
        variant: What distinguishes this model from another of the same name: `without propagated features`.
        tags: Further tags, such as the store's digest.
        resume: The run to continue instead of creating one.
    """
    known = {
        "cocn.role": "child",
        "cocn.model": model,
        "cocn.dataset": dataset,
        "cocn.seed": str(seed),
        "cocn.split": str(split),
        "cocn.metric": metric,
        "cocn.variant": variant,
        "cocn.config": config_digest(config),
        **_origin(),
        **(tags or {}),
    }
    key, run_id = (uuid.uuid4().hex, None) if resume is None else (resume.key, resume.run_id)
    reference = replace(parent.reference, key=key, run_id=run_id)
    if resume is not None:
        # The end of a killed attempt must reach the tracker before this one's, or it would overwrite it.
        sync(parent.reference.directory, parent.reference.uri, only_its_own=True)
    name = " ".join(filter(None, [model, variant, dataset, f"split {split}", f"seed {seed}"]))
    run = Run(reference, name, known, parent, resumed=resume is not None)
    if resume is None:
        run.log_config(config)
    return run


@dataclass(frozen=True)
class SyncResult:
    """What `cocn track sync` did."""

    sent: int
    waiting: int
    in_use: int
    reason: str = ""


def sync(directory: Path, uri: str | None = None, only_its_own: bool = False) -> SyncResult:
    """Send every journal that was left over, oldest first; after a failure a tracker is not tried again.

    Args:
        directory: Where the journals are kept.
        uri: Tracking URI instead of the one each journal was written for.
        only_its_own: Skip journals that were written for another URI.
    """
    close_orphans(directory)
    sent = waiting = in_use = 0
    failed: set[str] = set()
    reasons: list[str] = []
    for path in left_over(directory):
        journal = Journal.open(path)
        if journal is None:
            in_use += 1
            continue
        records = journal.records()
        written_for = records[0].values["uri"] if records else ""
        target = uri or _with_password(written_for)
        if records and only_its_own and written_for != without_password(target):
            journal.close(keep=True)
            continue
        arrived = False
        try:
            if target not in failed:
                _send_all(journal, records, target)
                arrived = True
        except NotCreatedError as error:  # only this run's problem: the tracker may accept others
            reasons.append(str(error))
        except Exception as error:  # noqa: BLE001 - the reason is reported, the journal stays
            failed.add(target)
            reasons.append(hide_passwords(str(error)) or type(error).__name__)
        journal.close(keep=not arrived)
        sent, waiting = sent + arrived, waiting + (not arrived)
    return SyncResult(sent, waiting, in_use, "; ".join(reasons))


def _send_all(journal: Journal, records: list[Record], uri: str) -> None:
    if records:
        artifacts = records[0].values["artifacts"]
        send_journal(journal, TrackingStore(uri, Path(artifacts) if artifacts else None))


def _with_password(uri: str) -> str:
    """The address a journal was written for, with its password from the environment."""
    known = os.environ.get("MLFLOW_TRACKING_URI", "")
    return known if known and without_password(known) == uri else uri


def close_orphans(directory: Path) -> int:
    """Write the end of runs whose process is gone into their journals; returns how many there were."""
    orphans = 0
    for path in left_over(directory):
        journal = Journal.open(path)
        if journal is None:
            continue
        records = journal.records()
        statuses = [record.values["status"] for record in records if record.kind == "status"]
        owner = records and (records[0].kind == "create" or "RUNNING" in statuses)
        if owner and (not statuses or statuses[-1] == "RUNNING"):
            journal.append("status", records[-1].time, {"status": "FAILED"})
            orphans += 1
        journal.close(keep=True)
    return orphans


def flatten(config: Config) -> dict[str, str]:
    """The configuration as MLflow parameters, by dotted key."""
    return {key: str(value) for key, value in dotted_values(config.model_dump(mode="json"))}


def config_digest(config: Config) -> str:
    """Digest of what affects a result, apart from seed and split: runs that share it may be averaged."""
    return text_sha256(decisive_settings(config, "store", "inputs", "weights", repeats=False))[:12]


@cache
def _origin() -> dict[str, str]:
    revision = source_revision()
    versions = {f"cocn.version.{name}": number for name, number in library_versions().items()}
    commit = {"mlflow.source.git.commit": revision.commit} if revision.commit else {}
    return {
        "mlflow.user": user_name(),
        "mlflow.source.name": "cocn",
        "mlflow.source.type": "LOCAL",
        "cocn.dirty": str(revision.dirty).lower(),
        "cocn.device": device_name(),
        **commit,
        **versions,
    }


def _status_after(error: BaseException | None) -> Status:
    if error is None:
        return "FINISHED"
    return "FAILED" if isinstance(error, Exception) else "KILLED"
