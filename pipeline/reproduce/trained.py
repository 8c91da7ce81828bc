"""Trains the cells of a table, split by split, and keeps a record of each."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from pipeline.config.loading import Config, load_config
from pipeline.config.marks import decisive_settings
from pipeline.ingest.published import AbsentDataError
from pipeline.paper.registry import find_benchmark
from pipeline.presets import load_preset
from pipeline.reproduce.records import Records, Scale, Source, TrainingRecord
from pipeline.reproduce.studies import Cell
from pipeline.runtime.errors import UserError
from pipeline.storage.files import text_sha256
from pipeline.tracking.runs import Run, start_parent
from pipeline.training.campaign import curve_of, scores_at_best_epoch
from pipeline.training.launch import train
from pipeline.training.prepare import STORES, open_prepared

Say = Callable[[str], None]
#: Seconds for a training when the budget is used up: enough for a step.
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class Request:
    """The options of `cocn reproduce`.

    Attributes:
        table: name of the table.
        cells: models on datasets.
        splits: number of splits of each; None for all that the protocol has.
        scale: the paper's settings, or smaller ones.
        budget: seconds for everything; None for no limit.
        again: also run what is already recorded.
        base: overrides for every training, such as the data root.
        command: what was typed, for the records.
    """

    table: str
    cells: Sequence[Cell]
    splits: int | None
    scale: Scale
    budget: float | None
    again: bool
    base: Mapping[str, object]
    command: str


@dataclass(frozen=True)
class CellResult:
    """A cell next to the paper's number, both in percent."""

    dataset: str
    model: str
    variant: str
    metric: str
    mean: float | None
    std: float | None
    splits: int
    cut_short: int
    """Number of trainings that the time budget ended."""
    paper_mean: float | None
    paper_std: float | None
    reached: bool | None
    """Whether the mean is at least the paper's minus its deviation; None if either is missing."""


@dataclass(frozen=True)
class Todo:
    """A training to run."""

    cell: Cell
    config: Config
    split: int


def run_table(request: Request, records: Records, say: Say) -> list[CellResult]:
    """Train what is not recorded yet, one split of every cell after the other.

    Raises:
        UserError: if no dataset of the table is available.
    """
    todo = plan(request, records)
    deadline = None if request.budget is None else time.monotonic() + request.budget
    absent: dict[str, str] = {}
    if todo:
        with start_parent("reproduce", todo[0].config) as parent:
            for number, item in enumerate(todo):
                name = item.cell.dataset
                if name in absent:
                    continue
                left = None
                if deadline is not None:
                    left = max(deadline - time.monotonic(), _LEAST_SECONDS) / (len(todo) - number)
                try:
                    records.add(_run_training(item, request, left, parent))
                except AbsentDataError as error:
                    absent[name] = str(error)
                    say(f"left out: {error}")
    results = [_summarise(cell, request, records) for cell in request.cells]
    if absent and all(result.mean is None for result in results):
        raise UserError(next(iter(absent.values())))
    return results


def plan(request: Request, records: Records) -> list[Todo]:
    """Trainings without a record, or whose record a different time budget or other settings would change."""
    found = []
    for cell in request.cells:
        protocol = find_benchmark(cell.dataset).protocol
        for split in range(min(request.splits or protocol.num_splits, protocol.num_splits)):
            config = configure(cell, request, split)
            known = _find_record(records, cell, request.scale, split, config.train.seed)
            if request.again or known is None or not is_settled(known, config, request.budget):
                found.append(Todo(cell, config, split))
    # One split of every cell before the next, so that no cell is without a number when the budget ends.
    return sorted(found, key=lambda item: item.split)


def is_settled(known: TrainingRecord, config: Config, budget: float | None) -> bool:
    """Whether training again could only repeat a record.

    A setting that a record lacks is newer than the record, which was made with its default.
    """
    wanted, defaults = settings_of(config), settings_of(Config())
    if any(known.settings.get(key, defaults[key]) != value for key, value in wanted.items()):
        return False
    return not known.cut_short or (budget is not None and budget <= known.seconds)


def configure(cell: Cell, request: Request, split: int) -> Config:
    """The configuration of one training."""
    preset = load_preset(cell.dataset, cell.model, quick=request.scale == "quick")
    config = load_config(None, {**preset, **cell.overrides, **request.base, "data.split": split})
    # Stores hold one set of sequences and of propagated features each.
    shape = decisive_settings(config, "inputs", repeats=False)
    store = config.output / STORES / f"{cell.dataset}-{text_sha256(shape)[:8]}"
    return config.model_copy(update={"data": config.data.model_copy(update={"store": store})})


def settings_of(config: Config) -> dict[str, JsonValue]:
    """What affects a number, by dotted key, apart from dataset, seed and split: a record names these."""
    found = decisive_settings(config, "store", "inputs", "weights", repeats=False, extends=False)
    del found["data.source"]
    return found


def _find_record(records: Records, cell: Cell, scale: Scale, split: int, seed: int) -> TrainingRecord | None:
    """The record of a cell on a split."""
    return records.training(cell.dataset, cell.model, cell.variant, scale, split, seed)


def _run_training(item: Todo, request: Request, budget: float | None, parent: Run) -> TrainingRecord:
    """Train one cell on one split."""
    cell, config = item.cell, item.config
    config = config.model_copy(update={"train": config.train.model_copy(update={"time_budget": budget})})
    store = open_prepared(config, models=[cell.model], splits=[item.split])
    result = train(config, store, parent, variant=cell.variant, tags={"cocn.table": request.table})
    return TrainingRecord(
        dataset=cell.dataset,
        model=cell.model,
        variant=cell.variant,
        scale=request.scale,
        split=item.split,
        seed=result.seed,
        metric=result.metric,
        value=result.test_metric,
        validation=result.best_val_metric,
        epochs=result.epochs,
        best_epoch=result.best_epoch,
        cut_short=result.out_of_time,
        seconds=round(result.train_seconds, 2),
        peak_memory_mb=round(result.peak_memory_mb, 1),
        num_parameters=result.num_parameters,
        curve=curve_of(result) if config.data.protocol == "gin" else {},
        settings=settings_of(item.config),
        source=Source.here(request.command),
    )


def _summarise(cell: Cell, request: Request, records: Records) -> CellResult:
    """The mean over the splits that are recorded."""
    protocol = find_benchmark(cell.dataset).protocol
    seed = configure(cell, request, 0).train.seed
    found = [
        record
        for split in range(protocol.num_splits)
        if (record := _find_record(records, cell, request.scale, split, seed)) is not None
    ]
    return compare(cell, found)


def compare(cell: Cell, found: Sequence[TrainingRecord]) -> CellResult:
    """Ours next to the paper's."""
    curves = [record.curve for record in found if record.curve]
    scores = scores_at_best_epoch(curves) if curves else [record.value for record in found]
    values = [100 * score for score in scores]
    mean = statistics.fmean(values) if values else None
    std = statistics.stdev(values) if len(values) > 1 else None
    paper_mean = cell.paper.mean if cell.paper else None
    paper_std = cell.paper.std if cell.paper else None
    reached = None if mean is None or paper_mean is None else mean >= paper_mean - (paper_std or 0.0)
    return CellResult(
        dataset=cell.dataset,
        model=cell.model,
        variant=cell.variant,
        metric=found[0].metric if found else find_benchmark(cell.dataset).metric,
        mean=mean,
        std=std,
        splits=len(values),
        cut_short=sum(record.cut_short for record in found),
        paper_mean=paper_mean,
        paper_std=paper_std,
        reached=reached,
    )
