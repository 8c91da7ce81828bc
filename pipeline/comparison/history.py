"""Trainings read back from the tracking store: one per child run, with its result, cost and curves."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pipeline.runtime.errors import UserError
from pipeline.tracking.mlflow_store import Point, TrackedRun, TrackingStore
from pipeline.tracking.runs import STAGE_PREFIX

CURVES = ("train_loss", "val_loss", "val_metric")
_METRIC_NAMES = {"roc_auc": "ROC AUC", "macro_f1": "macro F1", "average_precision": "average precision"}
_LOWER_IS_BETTER = frozenset({"mae", "mse", "rmse", "loss"})


@dataclass(frozen=True)
class Curve:
    """A metric over the epochs of one training."""

    steps: tuple[int, ...]
    values: tuple[float, ...]
    seconds: tuple[float, ...]
    """Time of each value since the run began."""


@dataclass(frozen=True)
class Training:
    """A finished training."""

    run_id: str
    experiment_id: str
    parent_id: str | None
    model: str
    """The model's name with its variant."""
    dataset: str
    metric: str
    split: int
    seed: int
    config: str
    """Digest of the configuration apart from seed and split."""
    test_metric: float
    start: int
    best_val_metric: float | None = None
    train_seconds: float | None = None
    rows_per_second: float | None = None
    peak_memory_mb: float | None = None
    num_parameters: int | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    """Where it was trained; the files may be gone, or on another machine."""
    revision: str = ""
    """Commit of the source, with a note if files differed from it."""
    device: str = ""

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger test metric is better."""
        return self.metric not in _LOWER_IS_BETTER

    @property
    def seconds_to_95(self) -> float | None:
        """Seconds until the validation metric first reached 95 % of its best; None without a curve."""
        curve = self.curves.get("val_metric")
        if curve is None or not curve.values or not self.higher_is_better:
            return None
        goal = 0.95 * max(curve.values)
        return next((s for s, value in zip(curve.seconds, curve.values, strict=True) if value >= goal), None)


@dataclass(frozen=True)
class Selection:
    """The trainings being compared, and what was left out."""

    experiment: str
    trainings: tuple[Training, ...]
    notes: tuple[str, ...] = ()


def select_trainings(
    store: TrackingStore,
    experiment: str,
    *,
    parent_id: str | None = None,
    models: Collection[str] | None = None,
    dataset: str | None = None,
) -> Selection:
    """Read the finished trainings of an experiment; for the same model, split and seed the newest counts.

    Args:
        store: The tracking store.
        experiment: Name of the experiment.
        parent_id: Only the children of this run.
        models: Only these models.
        dataset: Only this dataset.

    Raises:
        UserError: If the experiment, a model or the dataset does not exist, or nothing has finished.
    """
    children = [run for run in store.read_runs(experiment, parent_id) if "cocn.model" in run.tags]
    _check_names("--models", models or (), {run.tags["cocn.model"] for run in children})
    _check_names("--dataset", [dataset] if dataset else [], {run.tags["cocn.dataset"] for run in children})
    wanted = [
        run
        for run in children
        if (not models or run.tags["cocn.model"] in models)
        and (not dataset or run.tags["cocn.dataset"] == dataset)
    ]
    finished = [run for run in wanted if run.status == "FINISHED" and "test_metric" in run.metrics]
    if not finished:
        raise UserError(f"Expected experiment '{experiment}' to hold finished trainings (got none)")
    newest = _newest(finished)
    notes = [
        *_left_out(len(wanted) - len(finished), "without a result"),
        *_left_out(len(finished) - len(newest), "repeated later with the same split and seed"),
    ]
    trainings = tuple(_read_training(store, run) for run in newest)
    return Selection(experiment, trainings, (*notes, *_mixed_configurations(trainings)))


def _read_training(store: TrackingStore, run: TrackedRun) -> Training:
    """A finished child run with its curves."""
    metrics = run.metrics
    parameters = metrics.get("num_parameters")
    curves = {key: _curve(store.read_history(run.run_id, key), run.start) for key in CURVES if key in metrics}
    throughput = store.read_history(run.run_id, "rows_per_second") if "rows_per_second" in metrics else []
    return Training(
        run_id=run.run_id,
        experiment_id=run.experiment_id,
        parent_id=run.parent_id,
        model=" ".join(filter(None, [run.tags["cocn.model"], run.tags.get("cocn.variant", "")])),
        dataset=run.tags["cocn.dataset"],
        metric=run.tags.get("cocn.metric") or "metric",
        split=int(run.tags.get("cocn.split", 0)),
        seed=int(run.tags.get("cocn.seed", 0)),
        config=run.tags.get("cocn.config", ""),
        test_metric=metrics["test_metric"],
        start=run.start,
        best_val_metric=metrics.get("best_val_metric"),
        train_seconds=metrics.get("train_seconds"),
        rows_per_second=_median([point.value for point in throughput]),
        peak_memory_mb=metrics.get("peak_memory_mb"),
        num_parameters=int(parameters) if parameters is not None else None,
        curves=curves,
        stages={k.removeprefix(STAGE_PREFIX): v for k, v in metrics.items() if k.startswith(STAGE_PREFIX)},
        params=dict(run.params),
        directory=run.tags.get("cocn.directory", ""),
        revision=_revision(run.tags),
        device=run.tags.get("cocn.device", ""),
    )


def metric_name(metric: str) -> str:
    """A metric's usual name."""
    return _METRIC_NAMES.get(metric, metric)


def _revision(tags: Mapping[str, str]) -> str:
    commit = tags.get("mlflow.source.git.commit", "")[:10]
    return f"{commit} with changes" if commit and tags.get("cocn.dirty") == "true" else commit


def _curve(history: list[Point], start: int) -> Curve:
    # A resumed training logs some epochs twice; the last value of an epoch is the one it continued from.
    points = sorted({point.step: point for point in history}.values(), key=lambda point: point.step)
    return Curve(
        steps=tuple(point.step for point in points),
        values=tuple(point.value for point in points),
        seconds=tuple((point.time - start) / 1000 for point in points),
    )


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _newest(runs: list[TrackedRun]) -> list[TrackedRun]:
    names = ("cocn.dataset", "cocn.model", "cocn.variant", "cocn.split", "cocn.seed")
    by_identity = {
        tuple(run.tags.get(name, "") for name in names): run
        for run in sorted(runs, key=lambda run: run.start)
    }
    return list(by_identity.values())


def _mixed_configurations(trainings: Collection[Training]) -> list[str]:
    configurations: dict[tuple[str, str], set[str]] = {}
    for training in trainings:
        configurations.setdefault((training.model, training.dataset), set()).add(training.config)
    return [
        f"{model} on {dataset} averages {len(digests)} different configurations."
        for (model, dataset), digests in configurations.items()
        if len(digests) > 1
    ]


def _left_out(count: int, reason: str) -> list[str]:
    if not count:
        return []
    return [
        f"1 training {reason} is left out." if count == 1 else f"{count} trainings {reason} are left out."
    ]


def _check_names(flag: str, wanted: Collection[str], known: set[str]) -> None:
    for name in wanted:
        if name not in known:
            there = ", ".join(sorted(known)) or "none yet"
            raise UserError(f"Expected '{flag}' to name what was trained: {there} (got '{name}')")
