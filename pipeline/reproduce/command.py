"""What `cocn reproduce` does: finds the study behind a table, runs it, and writes its figure."""

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, get_args

from pipeline.paper.tables import load_tables
from pipeline.reproduce import complexity, information_loss, orders
from pipeline.reproduce.isomorphism import NAMES, Outcome, read_collections, run_test
from pipeline.reproduce.page import write_page
from pipeline.reproduce.records import Measurement, Records, Scale, Source, default_directory
from pipeline.reproduce.studies import TRAINED, cells_of, select, title_of
from pipeline.reproduce.trained import CellResult, Request, run_table
from pipeline.runtime.durations import parse_duration
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import SOURCE
from pipeline.runtime.spelling import suggest
from pipeline.storage.files import atomic_file

_ISOMORPHISM = "isomorphism"
_RESULTS = "results"
_STUDIES = (
    *TRAINED,
    _ISOMORPHISM,
    information_loss.STUDY,
    orders.EXPLICIT,
    orders.IMPLICIT,
    complexity.STUDY,
    _RESULTS,
)
#: Tables whose variants are numbers, with the name of the axis.
_LINES = {"tau": "τ", "permutations": "permutations"}
_FIGURES = "figures"
Say = Callable[[str], None]
_Case = TypeVar("_Case")


@dataclass(frozen=True)
class Choices:
    """The options of the command."""

    table: str
    datasets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    splits: int | None = None
    time_budget: str | None = None
    scale: str | None = None
    workers: str | None = None
    cpus_per_worker: int | None = None
    data_root: Path | None = None
    output: Path = Path("runs")
    records: Path | None = None
    again: bool = False
    largest: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Trained:
    """A table of trainings."""

    table: str
    cells: tuple[CellResult, ...]


@dataclass(frozen=True)
class Measured:
    """A study without scores."""

    table: str
    cases: tuple[Measurement, ...]


@dataclass(frozen=True)
class Page:
    """RESULTS.md."""

    path: Path


@dataclass(frozen=True)
class Found:
    """What to show, and where the figures are."""

    content: Trained | Measured | Page | dict[str, Outcome]
    figures: tuple[Path, ...] = ()


def run(choices: Choices, say: Say) -> Found:
    """Run a study.

    Raises:
        UserError: for a table that the paper does not have, or options that do not fit it.
    """
    table = choices.table
    if table not in _STUDIES:
        hint = suggest(table, _STUDIES, "`cocn reproduce --help` shows what each is")
        raise UserError(f"Expected a table among {', '.join(_STUDIES)} (got '{table}'): {hint}")
    records = Records(choices.records or default_directory(choices.output))
    if table == _RESULTS:
        return Found(_write_results(records))
    if table == _ISOMORPHISM:
        return Found(_run_isomorphism(choices, records))
    figure = choices.output / _FIGURES / f"{table}.png"
    figure.parent.mkdir(parents=True, exist_ok=True)
    if table in TRAINED:
        return _run_trained(choices, records, figure, say)
    return _run_measured(choices, records, figure, say)


def _run_trained(choices: Choices, records: Records, figure: Path, say: Say) -> Found:
    """Train the cells of a table."""
    request = Request(
        table=choices.table,
        cells=select(cells_of(choices.table), choices.datasets, choices.models, choices.variants),
        splits=choices.splits,
        scale=_choose_scale(choices.scale),
        budget=None if choices.time_budget is None else parse_duration(choices.time_budget),
        again=choices.again,
        base={**_shared_settings(choices), "train.seed": choices.seed},
        command=typed_command(),
    )
    results = run_table(request, records, say)
    # matplotlib takes a second to import.
    from pipeline.reproduce.drawing import draw_cells, draw_lines

    title = title_of(choices.table)
    if not any(result.mean is not None for result in results):
        return Found(Trained(choices.table, tuple(results)))
    if choices.table in _LINES:
        draw_lines(results, _LINES[choices.table], title, figure)
    else:
        draw_cells(results, title, figure)
    return Found(Trained(choices.table, tuple(results)), (figure,))


def _shared_settings(choices: Choices) -> dict[str, object]:
    """Overrides for every training of a command."""
    return {
        "data.data_root": choices.data_root,
        "output": choices.output,
        "resources.workers": choices.workers,
        "resources.cpus_per_worker": choices.cpus_per_worker,
    }


def _run_measured(choices: Choices, records: Records, figure: Path, say: Say) -> Found:
    """Measure the cases of a study and draw them."""
    from pipeline.reproduce import drawing

    table, command = choices.table, typed_command()
    base = _shared_settings(choices)
    if table == complexity.STUDY:
        names = _known(choices.models, tuple(complexity.SIZES), "model")
        cases = complexity.run_cases(
            records, command, models=names, largest=choices.largest, again=choices.again
        )
        found = _collect(table, cases, say)
        drawing.draw_complexity(found, figure)
        return Found(Measured(table, tuple(found)), (figure,))
    if table == information_loss.STUDY:
        shapes = _known(choices.datasets, information_loss.SHAPES, "graph")
        recoveries = _collect(table, information_loss.run_cases(records, command, shapes=shapes), say)
        drawing.draw_recoveries(recoveries, figure)
        return Found(Measured(table, tuple(one for one, _ in recoveries)), (figure,))
    make = orders.run_explicit if table == orders.EXPLICIT else orders.run_implicit
    chosen = _known(choices.datasets, load_tables()[table].datasets, "dataset")
    found_orders = _collect(table, make(records, command, base, chosen), say)
    drawing.draw_orders([order for _, order in found_orders], load_tables()[table].title, figure)
    written = tuple(sorted(figure.parent.glob(f"{figure.stem}*.png")))
    return Found(Measured(table, tuple(one for one, _ in found_orders)), written)


def _run_isomorphism(choices: Choices, records: Records) -> dict[str, Outcome]:
    """The isomorphism test; it trains nothing and keeps one record per collection."""
    if choices.data_root is None:
        raise UserError("Expected '--data-root', the directory that has isomorphism/ (got none)")
    found = {}
    for collection in read_collections(choices.data_root, _known(choices.datasets, NAMES, "dataset")):
        start = time.perf_counter()
        outcome = run_test(collection, choices.seed)
        records.add(
            Measurement(
                study=_ISOMORPHISM,
                case={"dataset": collection.name},
                values={
                    "pairs": outcome.num_pairs,
                    "undistinguished": outcome.undistinguished,
                    "copies": outcome.num_graphs,
                    "wrongly_distinguished": outcome.wrongly_distinguished,
                    "parameters": outcome.num_parameters,
                },
                seconds=round(time.perf_counter() - start, 2),
                source=Source.here(typed_command()),
            )
        )
        found[collection.name] = outcome
    return found


def _write_results(records: Records) -> Page:
    """Write RESULTS.md next to the records' checkout, or into the working directory."""
    place = SOURCE if records.directory.is_relative_to(SOURCE) else Path.cwd()
    path = place / "RESULTS.md"
    with atomic_file(path) as file:
        file.write(write_page(records).encode())
    return Page(path)


def _choose_scale(given: str | None) -> Scale:
    """The requested settings; by default the smaller ones if there is no GPU."""
    if given is None:
        import torch

        return "paper" if torch.cuda.is_available() else "quick"
    for scale in get_args(Scale):
        if given == scale:
            return scale  # type: ignore[no-any-return]
    raise UserError(f"Expected '--settings' to be paper or quick (got '{given}')")


def typed_command() -> str:
    """The command as typed, without paths of this machine."""
    words = [word for word in sys.argv[1:] if word != "--json"]
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("--data-root", "--output", "--records"):
            skip = True
        elif not word.startswith(("--data-root=", "--output=", "--records=")):
            kept.append(word)
    return f"cocn {shlex.join(kept)} --data-root DATASETS"


def _known(given: Sequence[str], known: Sequence[str], kind: str) -> tuple[str, ...]:
    for name in given:
        if name not in known:
            raise UserError(f"Expected a {kind} among {', '.join(known)} (got '{name}')")
    return tuple(given) or tuple(known)


def _collect(name: str, cases: Iterable[_Case], say: Say) -> list[_Case]:
    found = []
    for number, one in enumerate(cases, 1):
        found.append(one)
        say(f"{name}: {number} done")
    return found
