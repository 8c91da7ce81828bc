"""Runs a race: one split of every model before the next; earlier trainings are kept or continued."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.comparison.history import CURVES, Curve, Training
from pipeline.config.loading import Config, load_config
from pipeline.models.networks import resolve_task
from pipeline.paper.registry import BENCHMARKS_BY_NAME
from pipeline.race.attempts import MOST_KILLS, Attempts
from pipeline.race.entrants import Entrant, Request, choose_models, enter, source_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords
from pipeline.store.graph_store import GraphStore
from pipeline.store.timings import stage_seconds
from pipeline.tracking.runs import Run, flatten, start_parent
from pipeline.training.campaign import check_models, vary
from pipeline.training.launch import read_note, train
from pipeline.training.needs import resolve_needs
from pipeline.training.prepare import open_prepared
from pipeline.training.results import EpochRecord, TrainResult, read_epochs

_RACES = "races"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Course:
    """The outcome of a race, before anything is compared.

    Attributes:
        dataset: the graph, as it is named in tables.
        entrants: the models that took part.
        trainings: those that ended with a score.
        failures: why models have no score, by model.
        unfinished: models with a training that was ended by time before patience or epochs ran out.
        directory: where the race keeps its files.
    """

    dataset: str
    entrants: tuple[Entrant, ...]
    trainings: tuple[Training, ...]
    failures: dict[str, str]
    unfinished: frozenset[str]
    directory: Path


def run_course(request: Request, say: Say) -> Course:
    """Train every model on every split; a model that fails is left out with its reason.

    Raises:
        UserError: if the data, or a name, does not exist.
    """
    check_models(request.models)
    base = _base_config(request)
    store = open_prepared(base, models=["mlp"], say=say)
    models = choose_models(request.models, store, resolve_task(base, store))
    splits = _count_splits(request, store)
    directory = base.output.absolute() / _RACES / store.manifest.name
    attempts = Attempts(directory / "attempts.json")
    entrants, failures = _enter_all(models, request, store)
    trainings: list[Training] = []
    unfinished: set[str] = set()
    with start_parent("race", base) as parent:
        todo = [(split, entrant) for split in range(splits) for entrant in entrants]
        for number, (split, entrant) in enumerate(todo, start=1):
            model = entrant.model
            if model in failures:
                continue
            say(f"[{number}/{len(todo)}] {model}, split {split}")
            try:
                training, result = _run_training(entrant, split, store, parent, attempts)
            except Exception as error:  # noqa: BLE001 - whatever stops one model must not stop the others
                failures[model] = _reason_of(error)
                say(f"{model} is out: {failures[model]}")
                continue
            trainings.append(training)
            if result.out_of_time:
                unfinished.add(model)
    kept = tuple(training for training in trainings if training.model not in failures)
    return Course(store.manifest.name, entrants, kept, failures, frozenset(unfinished), directory)


def _base_config(request: Request) -> Config:
    """What all trainings share: the graph, its splits and its metric."""
    benchmark = BENCHMARKS_BY_NAME.get(request.data)
    preset = benchmark.overrides() if benchmark is not None else {}
    given = {**source_of(request.data), "data.protocol": "holdout", **(request.overrides or {})}
    config = load_config(None, given, preset=preset)
    # The model of the parent's record: a perceptron reads any graph as it is.
    return config.model_copy(update={"model": config.model.model_copy(update={"name": "mlp"})})


def _count_splits(request: Request, store: GraphStore) -> int:
    """The splits that every model is trained on: as many as requested, at most those that exist.

    Raises:
        UserError: if the graph has no labels, or no splits, to train on.
    """
    if not store.num_splits:
        raise UserError(f"Expected '{store.place}' to have splits to train on (got none)")
    return min(request.splits, store.num_splits)


def _enter_all(
    models: tuple[str, ...], request: Request, store: GraphStore
) -> tuple[tuple[Entrant, ...], dict[str, str]]:
    """All models with their settings, and why some cannot take part."""
    entrants, failures = [], {}
    for model in models:
        entrant = enter(model, request, store)
        entrants.append(entrant)
        try:
            resolve_task(entrant.config, store)
        except UserError as error:
            failures[model] = _reason_of(error)
    return tuple(entrants), failures


def _run_training(
    entrant: Entrant, split: int, store: GraphStore, parent: Run, attempts: Attempts
) -> tuple[Training, TrainResult]:
    """Train one model on one split, after the stages that it reads."""
    name = f"{entrant.model} split {split}"
    if attempts.is_hopeless(name):
        raise UserError(f"the system killed it {MOST_KILLS} times, most likely for lack of memory")
    seed = entrant.config.train.seed
    config = vary(entrant.config, entrant.model, split, seed, store)
    attempts.begin(name)
    try:
        own = open_prepared(config, models=[entrant.model], splits=[split])
        result = train(config, own, parent, tags={"cocn.race": store.manifest.name})
        return _describe_training(config, own, store.manifest.name, result), result
    finally:
        attempts.end(name)


def _describe_training(config: Config, store: GraphStore, dataset: str, result: TrainResult) -> Training:
    """A training as comparisons read it, from its own files: the tracker may be unreachable."""
    directory = result.checkpoint.parent
    epochs = read_epochs(directory)
    note = read_note(directory)
    rates = sorted(record.rows_per_second for record in epochs)
    return Training(
        run_id=(note.run_id if note is not None else None) or directory.name,
        experiment_id="",
        parent_id=None,
        model=result.model,
        dataset=dataset,
        metric=result.metric,
        split=result.split,
        seed=result.seed,
        config="",
        test_metric=result.test_metric,
        start=int(1000 * (directory / "result.json").stat().st_mtime),
        best_val_metric=result.best_val_metric,
        train_seconds=result.train_seconds,
        rows_per_second=rates[len(rates) // 2] if rates else None,
        peak_memory_mb=result.peak_memory_mb,
        num_parameters=result.num_parameters,
        curves={key: curve for key in CURVES if (curve := _curve(epochs, key)).steps},
        stages=stage_seconds(store, resolve_needs(config, store).stages),
        params=flatten(config),
        directory=str(directory),
    )


def _curve(epochs: list[EpochRecord], key: str) -> Curve:
    known = [(one.epoch, getattr(one, key), one.seconds) for one in epochs if getattr(one, key) is not None]
    steps, values, seconds = zip(*known, strict=True) if known else ((), (), ())
    return Curve(steps=steps, values=values, seconds=seconds)


def _reason_of(error: Exception) -> str:
    """The first line of an error, for a cell of a table."""
    text = hide_passwords(str(error)).strip().splitlines() or [type(error).__name__]
    return text[0] if isinstance(error, UserError) else f"{type(error).__name__}: {text[0]}"
