"""RESULTS.md: every number comes from a record, none is typed by hand."""

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import yaml

from pipeline.paper.registry import find_benchmark
from pipeline.reproduce import complexity, information_loss, orders
from pipeline.reproduce.records import Measurement, Records, Scale, Source, TrainingRecord
from pipeline.reproduce.studies import TRAINED, Cell, cells_of, title_of
from pipeline.reproduce.trained import CellResult, compare

_HEAD = """# Results

Written by `cocn reproduce results` from the records in `pipeline/paper/records`, one per run; no number
here was typed by hand. *here* is the mean ± standard deviation over the splits named, on test parts, at the
epoch that is best on the validation part; *paper* is the number as printed. Our models train with presets,
and so with the paper's recipe, unless a row says otherwise. *quick* marks the smaller settings of the
presets, which suit a machine without a GPU. *cut short* counts trainings that their time budget ended.
"""
_MEASURED = (
    ("isomorphism", "Graph isomorphism"),
    (information_loss.STUDY, "Information lost by the relaxed permutation"),
    (orders.EXPLICIT, "Orders from features"),
    (orders.IMPLICIT, "Orders from structure"),
    (complexity.STUDY, "Time and memory against size"),
)


@dataclass(frozen=True)
class _Row:
    """A cell with its trainings."""

    scale: Scale
    result: CellResult
    trainings: Sequence[TrainingRecord]


def write_page(records: Records) -> str:
    """The whole page."""
    found = list(records.trainings())
    parts = [_HEAD]
    for table in TRAINED:
        rows = list(_rows_of(table, found))
        if rows:
            parts += [_title(table), _table_of(rows), _note(table), _provenance_of(rows)]
    for study, title in _MEASURED:
        measured = records.measurements(study)
        if measured:
            parts += [f"## {title}\n", _measurements_table(measured), _note(study), _measured_by(measured)]
    return "\n".join(part for part in parts if part)


def _rows_of(table: str, found: Sequence[TrainingRecord]) -> Iterator[_Row]:
    """The cells of a table that have trainings, by settings."""
    for cell in cells_of(table):
        for scale in ("paper", "quick"):
            matching = [record for record in found if _belongs(record, cell, scale)]
            if matching:
                yield _Row(scale, compare(cell, matching), matching)


def _belongs(record: TrainingRecord, cell: Cell, scale: str) -> bool:
    key = (record.dataset, record.model, record.variant, record.scale)
    return key == (cell.dataset, cell.model, cell.variant, scale)


def _table_of(rows: Sequence[_Row]) -> str:
    """Ours next to the paper's."""
    lines = [
        "| dataset | model | variant | metric | here | paper | reached | splits | cut short | min each |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        one = row.result
        minutes = statistics.fmean(training.seconds for training in row.trainings) / 60
        reached = {True: "yes", False: "no", None: "–"}[one.reached]
        cells = (
            find_benchmark(one.dataset).title,
            one.model,
            one.variant or row.scale,
            one.metric,
            score(one.mean, one.std),
            score(one.paper_mean, one.paper_std),
            reached,
            f"{one.splits} of {find_benchmark(one.dataset).protocol.num_splits}",
            str(one.cut_short or "–"),
            f"{minutes:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def score(mean: float | None, std: float | None) -> str:
    """`90.72 ± 0.17`, or a dash."""
    if mean is None:
        return "–"
    return f"{mean:.2f}" + (f" ± {std:.2f}" if std is not None else "")


def _provenance_of(rows: Sequence[_Row]) -> str:
    """Commands, seeds, revisions and machines of a table's numbers."""
    trainings = [training for row in rows for training in row.trainings]
    seeds = sorted({training.seed for training in trainings})
    commands = dict.fromkeys(training.source.command for training in trainings)
    lines = [f"- `{command}`" for command in commands]
    return "\n".join(
        [
            f"Seeds {', '.join(map(str, seeds))}; {_origin(t.source for t in trainings)}. Commands:\n",
            *lines,
            "",
        ]
    )


def _measurements_table(measured: Sequence[Measurement]) -> str:
    """Cases and values, one row per case."""
    keys = list(measured[0].case)
    values = list(dict.fromkeys(name for one in measured for name in one.values))
    lines = [f"| {' | '.join((*keys, *values))} |", "|" + "---|" * (len(keys) + len(values))]
    for one in sorted(measured, key=lambda m: [_sortable(value) for value in m.case.values()]):
        cells = [_number(one.case[key]) for key in keys]
        cells += [_number(one.values.get(name, "–")) for name in values]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(line.replace("_", " ") for line in lines) + "\n"


def _measured_by(measured: Sequence[Measurement]) -> str:
    commands = dict.fromkeys(one.source.command for one in measured)
    seconds = sum(one.seconds for one in measured)
    return "\n".join(
        [
            f"{seconds:,.0f} s in all; {_origin(one.source for one in measured)}. Commands:\n",
            *(f"- `{command}`" for command in commands),
            "",
        ]
    )


def _origin(sources: Iterable[Source]) -> str:
    found = list(sources)
    revisions = sorted({f"{(s.revision or 'unknown')[:8]}{' with changes' * s.dirty}" for s in found})
    devices = sorted({s.device for s in found})
    return f"revision {', '.join(revisions)}; {'; '.join(devices)}"


def _title(table: str) -> str:
    return f"## {title_of(table)}\n"


def _note(study: str) -> str:
    text = resources.files("pipeline.paper").joinpath("notes.yaml").read_text(encoding="utf-8")
    note = yaml.safe_load(text).get(study, "")
    return f"{note.strip()}\n" if note else ""


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sortable(value: object) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, str(value))
