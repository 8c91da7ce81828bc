"""The jobs, and what must be the same however often they were disturbed."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from pipeline.config.loading import to_yaml
from pipeline.storage.files import file_sha256
from pipeline.tracking.mlflow_store import TrackingStore
from tests.pipeline.conftest import tiny_config
from tests.storage import Storage

Facts = dict[str, object]
UNSTABLE = ("timings.json",)


@dataclass(frozen=True)
class Bench:
    """What jobs are run on.

    Attributes:
        store: a prepared store, which jobs read and never write.
        training: a finished training on it.
        database: an empty MLflow database, to copy.
        storage: an object store behind a line that can be disturbed.
        tracker: an MLflow server behind another one: its address.
    """

    store: Path
    training: Path
    database: Path
    storage: Storage
    tracker: str


@dataclass(frozen=True)
class Job:
    """One command.

    Attributes:
        name: how the record calls it.
        words: what it is called with, given the bench and a directory of its own.
        facts: what it left there, once it succeeded.
        parts: processes that a fault may hit, beside the driver.
        lines: connections that a fault may hit: `storage`, `tracker`.
        prepare: puts into the directory what the command needs.
    """

    name: str
    words: Callable[[Bench, Path], list[str]]
    facts: Callable[[Bench, Path], Facts]
    parts: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    prepare: Callable[[Bench, Path], None] = field(default=lambda bench, here: None)


def digests(directory: Path) -> Facts:
    """SHA-256 of every file of a store, except the timings."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.name not in UNSTABLE]
    return {str(path.relative_to(directory)): file_sha256(path) for path in files}


def _preprocess(bench: Bench, here: Path) -> list[str]:
    words = ["preprocess", "minesweeper", "--side", "12", "--length", "5", "--heads", "2"]
    return [*words, "--store", str(here / "store"), "--json"]


def _remote_preprocess(bench: Bench, here: Path) -> list[str]:
    words = ["preprocess", "minesweeper", "--side", "12", "--length", "5", "--heads", "2"]
    place = ["--store", bench.storage.uri(f"{here.name}/store"), "--set", f"storage.cache={here}/cache"]
    return [*words, *place, "--set", "storage.retry_seconds=20", "--json"]


def _remote_facts(bench: Bench, here: Path) -> Facts:
    key = f"{here.name}/store"
    names = sorted(bench.storage.names(key) - set(UNSTABLE))
    return {name: hashlib.sha256(bench.storage.read(f"{key}/{name}")).hexdigest() for name in names}


def _train(workers: int) -> Callable[[Bench, Path], list[str]]:
    return lambda bench, here: ["train", "segment", "--config", str(here / "run.yaml"), "--json"]


def _prepare_training(workers: int, *, tracked: bool = False) -> Callable[[Bench, Path], None]:
    def prepare(bench: Bench, here: Path) -> None:
        settings: dict[str, object] = {
            "data__store": str(bench.store),
            "data__source": "minesweeper",
            "train__batch_size": 8,
            "train__epochs": 6,
            "train__checkpoint_seconds": 0,
            "resources__workers": workers,
        }
        if tracked:
            settings["tracking__uri"] = bench.tracker
            settings["tracking__experiment"] = here.name
        (here / "runs").mkdir()
        (here / "run.yaml").write_text(to_yaml(tiny_config(here / "runs", **settings)))
        if not tracked:
            shutil.copy(bench.database, here / "runs" / "mlflow.db")

    return prepare


def _training_facts(bench: Bench, here: Path) -> Facts:
    (training,) = (here / "runs" / "trainings").glob("*-segment-*")
    result = json.loads((training / "result.json").read_text())
    losses = [json.loads(line)["train_loss"] for line in (training / "epochs.jsonl").read_text().splitlines()]
    return {"weights": result["weights_sha256"], "test": result["test"], "losses": losses}


def _local_facts(bench: Bench, here: Path) -> Facts:
    store = TrackingStore(f"sqlite:///{here / 'runs' / 'mlflow.db'}")
    return {**_training_facts(bench, here), **_metrics(store, "cocn")}


def _metrics(store: TrackingStore, experiment: str) -> Facts:
    """How many values of each metric the finished training has; a step that was done twice counts once."""
    (run,) = [run for run in store.read_runs(experiment) if run.tags["cocn.role"] == "child"]
    counts = {
        name: len({point.step for point in store.read_history(run.run_id, name)})
        for name in ("train_loss", "val_loss", "test_metric")
    }
    return {"status": run.status, "metrics": counts}


def _predict(bench: Bench, here: Path) -> list[str]:
    place = ["--checkpoint", str(bench.training), "--store", str(bench.store)]
    return ["predict", *place, "--out", str(here / "predictions.parquet"), "--json"]


def _prediction_facts(bench: Bench, here: Path) -> Facts:
    table = pq.read_table(here / "predictions.parquet")
    return {"rows": table.num_rows, "table": hashlib.sha256(str(table.to_pydict()).encode()).hexdigest()}


def _compare(bench: Bench, here: Path) -> list[str]:
    place = ["--tracking-uri", f"sqlite:///{here / 'mlflow.db'}", "--experiment", "cocn"]
    return ["compare", *place, "--out", str(here / "report.html"), "--json"]


def _prepare_comparison(bench: Bench, here: Path) -> None:
    shutil.copy(bench.training.parents[1] / "mlflow.db", here / "mlflow.db")


def _comparison_facts(bench: Bench, here: Path) -> Facts:
    return {"report": "segment" in (here / "report.html").read_text()}


RAY = ("worker", "raylet", "gcs")
JOBS = (
    Job("train", _train(1), _local_facts, prepare=_prepare_training(1)),
    Job("predict", _predict, _prediction_facts),
    Job("compare", _compare, _comparison_facts, prepare=_prepare_comparison),
    Job("preprocess", _preprocess, lambda bench, here: digests(here / "store"), parts=RAY),
    Job("train two workers", _train(2), _local_facts, parts=RAY, prepare=_prepare_training(2)),
    Job("preprocess to s3", _remote_preprocess, _remote_facts, parts=RAY, lines=("storage",)),
    Job(
        "train tracked by a server",
        _train(1),
        lambda bench, here: {
            **_training_facts(bench, here),
            **_metrics(TrackingStore(bench.tracker), here.name),
        },
        lines=("tracker",),
        prepare=_prepare_training(1, tracked=True),
    ),
)
