"""MLflow's store, which runs are written to and read from.

This module and `mlflow_models` are the only ones that import mlflow. It works with a SQLite file, a tracking
server and any database MLflow supports. Everything it sends may be sent again: MLflow keeps one copy of a
metric with the same key, step, time and value, and runs are created under a key of our own, which is looked
up before a second attempt.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar
from urllib.parse import urlsplit

from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords, without_password

if TYPE_CHECKING:
    from mlflow.entities import Run as MlflowRun
    from mlflow.tracking import MlflowClient

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]
_Item = TypeVar("_Item")

_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql", "mssql", "databricks")
_FILE_PREFIX = "sqlite:///"
_REMOTE = ("http", "databricks")
_KEY_TAG = "cocn.key"
# MLflow's pages open on language models unless the address asks for training.
PAGE_QUERY = "?workflowType=machine_learning"
PARENT_TAG = "mlflow.parentRunId"
_TABLES_TAG = "mlflow.loggedArtifacts"
_METRICS_PER_REQUEST = 1000
_PARAMS_PER_REQUEST = 100
_LONGEST_PARAM = 6000
_LONGEST_TAG = 8000

# Give up on a tracker that does not answer after seconds, not minutes: the journal keeps the records.
_CLIENT_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "PGCONNECT_TIMEOUT": "10",
}


@dataclass(frozen=True)
class Point:
    """One value of a metric."""

    key: str
    value: float
    step: int
    time: int
    """Milliseconds since 1970."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as the store holds it."""

    run_id: str
    experiment_id: str
    name: str
    status: str
    start: int
    end: int | None
    parent_id: str | None
    artifact_uri: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


def tracking_uri(uri: str | None, output: Path) -> str:
    """The URI to use: the one given, else MLFLOW_TRACKING_URI, else the file `mlflow.db` in `output`.

    Raises:
        UserError: If the URI is not of a kind that MLflow supports, or cannot be read.
    """
    chosen = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{output.absolute() / 'mlflow.db'}"
    scheme = chosen.partition("://")[0].partition("+")[0]
    if "://" not in chosen or scheme not in _SCHEMES:
        known = ", ".join(_SCHEMES)
        shown = hide_passwords(chosen)
        raise UserError(f"Expected 'tracking.uri' to begin with one of {known} and '://' (got '{shown}')")
    if chosen.startswith("postgresql://") and find_spec("psycopg") is None:
        raise UserError("Expected the Postgres driver (got none): pip install 'cocn[postgres]'")
    if scheme.startswith("http"):
        try:
            _ = urlsplit(chosen).port
        except ValueError:
            # Not shown: what is there instead of a port may be part of a password.
            raise UserError(
                "Expected 'tracking.uri' to be http://HOST:PORT (got one whose port is not a number): "
                "write special characters in a password as %XX"
            ) from None
    return chosen


def existing_store(uri: str | None, output: Path) -> "TrackingStore":
    """The store that earlier runs wrote to; never creates one.

    Raises:
        UserError: If it is a file that does not exist, or a server that does not answer.
    """
    store = TrackingStore(tracking_uri(uri, output))
    if store.uri.startswith(_FILE_PREFIX) and not Path(store.uri.removeprefix(_FILE_PREFIX)).exists():
        place = store.uri.removeprefix(_FILE_PREFIX)
        raise UserError(f"Expected runs in '{place}' (got no such file); train something first: cocn demo")
    store.require_answer()
    return store


class TrackingStore:
    """A place where MLflow keeps runs.

    Args:
        uri: Tracking URI.
        artifacts: Directory for artifacts of experiments created here; a server chooses its own.
    """

    def __init__(self, uri: str, artifacts: Path | None = None) -> None:
        self.uri = uri
        self._artifacts = artifacts
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}

    @property
    def client(self) -> "MlflowClient":
        """The client, made on first use because importing mlflow takes seconds."""
        if self._client is None:
            for name, value in _CLIENT_ENVIRONMENT.items():
                os.environ.setdefault(name, value)
            if self.uri.startswith(_FILE_PREFIX):
                Path(self.uri.removeprefix(_FILE_PREFIX)).parent.mkdir(parents=True, exist_ok=True)
            elif not self.uri.startswith(_REMOTE):
                _reach_database(self.uri)
            from mlflow.tracking import MlflowClient

            logging.getLogger("alembic").setLevel(logging.WARNING)
            logging.getLogger("mlflow").setLevel(logging.WARNING)
            self._client = MlflowClient(tracking_uri=self.uri)
        return self._client

    @property
    def web_address(self) -> str | None:
        """Address of the user interface, if a server keeps the runs."""
        return without_password(self.uri) if self.uri.startswith("http") else None

    def runs_page(self, address: str, experiment: str) -> str:
        """Address of an experiment's list of runs on a server."""
        found = self.client.get_experiment_by_name(experiment)
        if found is None:
            return address
        return f"{address.rstrip('/')}/#/experiments/{found.experiment_id}/runs{PAGE_QUERY}"

    def create_run(self, experiment: str, name: str, key: str, start: int, tags: Mapping[str, str]) -> str:
        """Create a run and return its id."""
        known = {_KEY_TAG: key, **{tag: value[:_LONGEST_TAG] for tag, value in tags.items()}}
        run = self.client.create_run(self._experiment_id(experiment), start, known, name)
        return str(run.info.run_id)

    def find_run(self, experiment: str, key: str) -> str | None:
        """The id of the run created under `key`, if any."""
        found = self.client.search_runs([self._experiment_id(experiment)], f"tags.`{_KEY_TAG}` = '{key}'")
        return str(found[0].info.run_id) if found else None

    def send_metrics(self, run_id: str, points: Sequence[Point]) -> None:
        """Store points; points sent twice are kept once."""
        from mlflow.entities import Metric

        metrics = [Metric(p.key, p.value, p.time, p.step) for p in points]
        for part in _parts(metrics, _METRICS_PER_REQUEST):
            self.client.log_batch(run_id, metrics=part)

    def send_params(self, run_id: str, params: Mapping[str, str]) -> None:
        """Store parameters; the same value may be sent again."""
        from mlflow.entities import Param

        for part in _parts([Param(k, v[:_LONGEST_PARAM]) for k, v in params.items()], _PARAMS_PER_REQUEST):
            self.client.log_batch(run_id, params=part)

    def send_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Store tags; a later value replaces an earlier one."""
        from mlflow.entities import RunTag

        for part in _parts([RunTag(k, v[:_LONGEST_TAG]) for k, v in tags.items()], _PARAMS_PER_REQUEST):
            self.client.log_batch(run_id, tags=part)

    def send_artifact(self, run_id: str, path: Path, folder: str | None) -> None:
        """Store a file, or a directory with everything in it."""
        if path.is_dir():
            self.client.log_artifacts(run_id, str(path), folder)
        else:
            self.client.log_artifact(run_id, str(path), folder)

    def send_table(self, run_id: str, columns: Mapping[str, Sequence[object]], name: str) -> None:
        """Store a table that MLflow's pages show and compare between runs; replaces one of that name.

        MLflow's own call would append to a table that has already arrived.
        """
        rows = [list(row) for row in zip(*columns.values(), strict=True)]
        self.client.log_text(run_id, json.dumps({"columns": list(columns), "data": rows}), name)
        self.client.set_tag(run_id, _TABLES_TAG, json.dumps([{"path": name, "type": "table"}]))

    def send_dataset(self, run_id: str, dataset: Mapping[str, str]) -> None:
        """Name the data that a run was trained on; may be sent again.

        Args:
            run_id: The run.
            dataset: `name`, `digest`, `source`, and `profile`, which is JSON.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"uri": dataset["source"]})
        named = Dataset(dataset["name"], dataset["digest"], "local", source, profile=dataset["profile"])
        self.client.log_inputs(run_id, [DatasetInput(named, [InputTag("mlflow.data.context", "training")])])

    def send_text(self, run_id: str, text: str, name: str) -> None:
        """Store a text as a file."""
        self.client.log_text(run_id, text, name)

    def set_status(self, run_id: str, status: Status, time: int | None = None) -> None:
        """End a run, or mark it as running again."""
        if status == "RUNNING":
            self.client.update_run(run_id, status=status)
        else:
            self.client.set_terminated(run_id, status, time)

    def read_run(self, run_id: str) -> TrackedRun:
        """One run by its id."""
        return _tracked(self.client.get_run(run_id))

    def read_runs(self, experiment: str, parent_id: str | None = None) -> list[TrackedRun]:
        """The runs of an experiment, newest first; with `parent_id` only that run's children.

        Raises:
            UserError: If there is no such experiment.
        """
        found = self.client.get_experiment_by_name(experiment)
        if found is None:
            names = sorted(e.name for e in self.client.search_experiments() if e.name != "Default")
            known = f"there are {', '.join(names)}" if names else "there are none yet"
            raise UserError(f"Expected '--experiment' to name an experiment (got '{experiment}'; {known})")
        condition = f"tags.`{PARENT_TAG}` = '{parent_id}'" if parent_id else ""
        return list(self._pages(found.experiment_id, condition))

    def read_history(self, run_id: str, key: str) -> list[Point]:
        """Every value of a metric, by step and then by time."""
        history = self.client.get_metric_history(run_id, key)
        points = [Point(m.key, m.value, m.step, m.timestamp) for m in history]
        return sorted(points, key=lambda point: (point.step, point.time))

    def require_answer(self) -> None:
        """Refuse a tracker that does not answer.

        Raises:
            UserError: With its address and the reason.
        """
        from mlflow.exceptions import MlflowException

        try:
            self.client.search_experiments(max_results=1)
        except (MlflowException, OSError) as error:
            lines = hide_passwords(str(error)).splitlines() or [type(error).__name__]
            raise UserError(
                f"Expected the tracker '{without_password(self.uri)}' to answer (got {lines[0][:200]}): "
                "is it running, and are the address and password right?"
            ) from error

    def refuses_for_good(self, error: Exception) -> bool:
        """Whether sending this again can never succeed: a file that is gone, a name that MLflow forbids."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            return str(error.error_code) == "INVALID_PARAMETER_VALUE"
        return isinstance(error, FileNotFoundError)

    def _pages(self, experiment_id: str, condition: str) -> Iterator[TrackedRun]:
        token: str | None = None
        while True:
            page = self.client.search_runs([experiment_id], condition, max_results=1000, page_token=token)
            yield from map(_tracked, page)
            token = page.token
            if not token:
                return

    def _experiment_id(self, name: str) -> str:
        if name not in self._experiments:
            self._experiments[name] = self._find_or_create_experiment(name)
        return self._experiments[name]

    def _find_or_create_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if (found := self.client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        remote = self.uri.startswith(_REMOTE)
        place = None if remote or self._artifacts is None else self._artifacts.absolute().as_uri()
        try:
            return str(self.client.create_experiment(name, place))
        except MlflowException:
            # Two processes may create it at once; the second one then finds it.
            if (found := self.client.get_experiment_by_name(name)) is None:
                raise
            return str(found.experiment_id)


def _reach_database(uri: str) -> None:
    """Fail immediately where MLflow would spend minutes trying to reach a database that refuses."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri, poolclass=sqlalchemy.NullPool)
    with engine.connect():
        pass


def _tracked(run: "MlflowRun") -> TrackedRun:
    info, data = run.info, run.data
    return TrackedRun(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        name=info.run_name or info.run_id,
        status=str(info.status),
        start=info.start_time,
        end=info.end_time,
        parent_id=data.tags.get(PARENT_TAG),
        artifact_uri=info.artifact_uri,
        metrics=dict(data.metrics),
        params=dict(data.params),
        tags=dict(data.tags),
    )


def _parts(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
