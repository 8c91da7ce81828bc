"""The search: random points of a space on Ray Tune, weak ones stopped early by ASHA; resumable."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.config.loading import Config, to_yaml
from pipeline.config.marks import decisive_settings
from pipeline.engine.session import ray_session
from pipeline.models.metrics import chosen_metric
from pipeline.models.networks import resolve_task
from pipeline.models.recipes import with_model
from pipeline.runtime.errors import UserError
from pipeline.storage.files import atomic_file, text_sha256
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.runs import Earlier, Run, start_child, start_parent
from pipeline.training.launch import RunNote, compared_as
from pipeline.training.remote_copy import RUN_FILE
from pipeline.training.results import read_epochs, read_result
from pipeline.tuning.outcome import (
    Trial,
    Tuned,
    apply_point,
    best_config,
    best_of,
    measure_importance,
)
from pipeline.tuning.report import render_report
from pipeline.tuning.space import Choices, Dimension, Space
from pipeline.tuning.trial import VARIANT, TrialSettings, run_trial
from pipeline.tuning.trial_progress import show_trials, tell_trials

logger = logging.getLogger(__name__)

_TUNE = "tune"
BEST, REPORT, PARENT = "best.yaml", "report.html", "parent.json"
_REDUCTION = 3
#: Seconds between two snapshots that Ray Tune takes of a search.
_NOTE_SECONDS = "2"


@dataclass(frozen=True)
class Budget:
    """The limits of a search.

    Attributes:
        trials: number of points to try.
        seconds: time after which no trial is started or continued; None for no limit.
        grace: epochs that every trial gets.
        concurrent: trials at once; None for as many as there are cores.
        seed: seed of the points.
    """

    trials: int = 20
    seconds: float | None = None
    grace: int = 3
    concurrent: int | None = None
    seed: int = 0


def _tune_directory(config: Config, store: GraphStore, space: Space, budget: Budget) -> Path:
    """Where a search is stored: the same command continues in the same place."""
    identity = {
        "settings": decisive_settings(config, "inputs", "weights"),
        "store": store.digest,
        "space": {key: repr(dimension) for key, dimension in space.items()},
        "seed": budget.seed,
        "grace": budget.grace,
        "trials": budget.trials,
    }
    name = f"{store.manifest.name}-{config.model.name}-{text_sha256(identity)[:12]}"
    return config.output.absolute() / _TUNE / name


def search(config: Config, store: GraphStore, space: Space, budget: Budget) -> Tuned:
    """Try points of a space; a killed search continues, a finished one is only reported.

    Args:
        config: What the points vary; its epochs are the maximum per trial.
        store: The graph, with the stages the model needs.
        space: What to draw from.
        budget: The limits.

    Raises:
        UserError: If no trial reached a validation.
    """
    # Trials run in their own directories.
    config = config.model_copy(update={"output": config.output.absolute()})
    config = with_model(config, config.model.name, store)
    directory = _tune_directory(config, store, space, budget)
    directory.mkdir(parents=True, exist_ok=True)
    note = directory / PARENT
    noted = RunNote.model_validate_json(note.read_text()) if note.exists() else None
    with start_parent("tune", config, resume=None if noted is None else noted.earlier()) as parent:
        note.write_text(RunNote(run_id=parent.run_id, key=parent.reference.key).model_dump_json())
        settings = TrialSettings(config, store.place, parent.reference)
        with ray_session(), show_trials(budget.trials):
            trials = _run_trials(settings, space, budget, directory)
        _end_stopped(parent, settings, trials)
        return _conclude(config, store, space, trials, directory, parent)


def _run_trials(settings: TrialSettings, space: Space, budget: Budget, directory: Path) -> tuple[Trial, ...]:
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", _NOTE_SECONDS)
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # turns off its tables; we show a bar
    from ray import tune

    resources = settings.config.resources
    trainable = tune.with_resources(
        partial(run_trial, settings=settings),
        {"cpu": resources.cpus_per_worker or 1, "gpu": resources.gpus_per_worker},
    )
    points = {key: _draw(dimension) for key, dimension in space.items()}
    place = directory / "ray"
    if tune.Tuner.can_restore(str(place)):
        logger.info("continuing the search in %s", directory)
        tuner = tune.Tuner.restore(
            str(place), trainable, resume_unfinished=True, resume_errored=False, param_space=points
        )
    else:
        tuner = _new_tuner(trainable, points, settings.config, budget, place)
    grid: Any = tuner.fit()
    trials = [_describe(result, settings) for result in grid]
    return tuple(sorted(trials, key=lambda trial: trial.number))


def _new_tuner(
    trainable: Any, points: Mapping[str, object], config: Config, budget: Budget, place: Path
) -> Any:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.basic_variant import BasicVariantGenerator

    epochs = config.train.epochs
    return tune.Tuner(
        trainable,
        param_space=dict(points),
        tune_config=tune.TuneConfig(
            metric="val_metric",
            mode="max",
            num_samples=budget.trials,
            time_budget_s=budget.seconds,
            search_alg=BasicVariantGenerator(random_state=budget.seed, max_concurrent=budget.concurrent or 0),
            scheduler=ASHAScheduler(
                time_attr="epoch",
                max_t=epochs,
                grace_period=min(budget.grace, epochs),
                reduction_factor=_REDUCTION,
            ),
        ),
        run_config=tune.RunConfig(
            name=place.name, storage_path=str(place.parent), verbose=0, callbacks=[tell_trials()]
        ),
    )


def _draw(dimension: Dimension) -> object:
    """A dimension in Ray Tune's terms, where upper ends of integer ranges are excluded."""
    from ray import tune

    if isinstance(dimension, Choices):
        return tune.choice(list(dimension.values))
    low, high = dimension.low, dimension.high
    if dimension.whole:
        make = tune.lograndint if dimension.scale == "log" else tune.randint
        return make(int(low), int(high) + 1)
    return tune.loguniform(low, high) if dimension.scale == "log" else tune.uniform(low, high)


def _describe(result: Any, settings: TrialSettings) -> Trial:
    """A trial according to its own directory: Ray Tune may have recorded less when it was killed."""
    # Ray Tune names directories `run_trial_<search>_<number>_…`; the order of its results may change.
    number = int(Path(result.path).name.split("_")[3])
    point = {key: getattr(value, "item", lambda value=value: value)() for key, value in result.config.items()}
    directory = settings.directory(point)
    records = read_epochs(directory)
    scores = [record.val_metric for record in records if record.val_metric is not None]
    finished = read_result(directory)
    note = directory / RUN_FILE
    problem = "" if result.error is None else _last_line(str(result.error))
    if problem:
        status = "failed"
    elif finished is not None:
        status = "finished"
    else:
        status = "stopped" if scores else "unfinished"
    return Trial(
        number=number,
        point=point,
        status=status,
        epochs=len(records),
        val_metric=max(scores, default=None),
        test_metric=None if finished is None else finished.test_metric,
        run_id=RunNote.model_validate_json(note.read_text()).run_id if note.exists() else None,
        problem=problem,
    )


def _end_stopped(parent: Run, settings: TrialSettings, trials: tuple[Trial, ...]) -> None:
    """End the runs of trials that were stopped early: Ray Tune kills their processes, like a crash would."""
    store = open_store(settings.store)
    for trial in trials:
        note = settings.directory(trial.point) / RUN_FILE
        if trial.status not in ("stopped", "unfinished") or not note.exists():
            continue
        config = apply_point(settings.config, trial.point)
        earlier = RunNote.model_validate_json(note.read_text()).earlier()
        if earlier is None:
            continue
        with _reopened(parent, config, store, earlier) as run:
            run.set_tags({"cocn.trial": f"{trial.status} after {trial.epochs} epochs"})


def _reopened(parent: Run, config: Config, store: GraphStore, earlier: Earlier) -> Run:
    return start_child(
        parent,
        config,
        model=config.model.name,
        dataset=compared_as(config, store, resolve_task(config, store)),
        seed=config.train.seed,
        split=config.data.split,
        variant=VARIANT,
        resume=earlier,
    )


def _conclude(
    config: Config,
    store: GraphStore,
    space: Space,
    trials: tuple[Trial, ...],
    directory: Path,
    parent: Run,
) -> Tuned:
    best = best_of(trials)
    if best is None:
        problem = next((trial.problem for trial in trials if trial.problem), "the time budget ended before")
        raise UserError(f"Expected a trial that reaches a validation (got none: {problem})")
    task = resolve_task(config, store)
    tuned = Tuned(
        model=config.model.name,
        dataset=compared_as(config, store, task),
        metric=chosen_metric(config.train.metric, store.manifest.num_classes, task, store.manifest.answer),
        best=best,
        importance=measure_importance(trials, space),
        trials=trials,
        config_file=directory / BEST,
        report=directory / REPORT,
        parent_run=parent.run_id,
    )
    for path, text in (
        (tuned.config_file, best_config(config, best.point)),
        (tuned.report, render_report(tuned, space)),
    ):
        with atomic_file(path) as file:
            file.write(text.encode())
        parent.log_artifact(path)
    parent.log_text(to_yaml(apply_point(config, best.point)), "best-resolved.yaml")
    parent.log(0, {"best_val_metric": best.val_metric or 0.0, "trials": float(len(trials))})
    return tuned


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason given"
