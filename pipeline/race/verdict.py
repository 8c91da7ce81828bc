"""What a race shows: one row per model, the front of result against time, and a sentence on who wins."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.comparison.history import Selection, metric_name
from pipeline.comparison.report import write_report
from pipeline.comparison.statistics import (
    MANY_PAIRS,
    Comparison,
    Contrast,
    Row,
    compare,
    decimals,
    format_quantity,
    format_score,
)
from pipeline.models.networks import FAMILY
from pipeline.race.course import Course, Say, run_course
from pipeline.race.entrants import Request
from pipeline.runtime.durations import format_duration
from pipeline.runtime.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

_REPORT = "report.html"


@dataclass(frozen=True)
class Standing:
    """A model in the table."""

    model: str
    ours: bool
    status: str
    """`finished`, `out of time` if the budget ended it, or `_failed`."""
    mean: float | None = None
    std: float | None = None
    splits: int = 0
    train_seconds: float | None = None
    peak_memory_mb: float | None = None
    num_parameters: int | None = None
    on_front: bool = False
    """Whether no model is both better and faster."""
    reason: str = ""
    """Why there is no result."""


@dataclass(frozen=True)
class Race:
    """What `cocn race` found."""

    dataset: str
    metric: str
    protocol: str
    standings: tuple[Standing, ...]
    contrasts: tuple[Contrast, ...]
    verdict: str
    report: Path


def race(request: Request, say: Say, out: Path | None = None) -> Race:
    """Race models on a graph and say who wins.

    Args:
        request: The graph, the models and the protocol.
        say: Called with one line per step.
        out: The report; by default in the directory of the race.

    Raises:
        UserError: if no model ends with a result.
    """
    course = run_course(request, say)
    if not course.trainings:
        reasons = "; ".join(f"{model}: {reason}" for model, reason in course.failures.items())
        raise UserError(f"Expected at least one model to end with a result (got none: {reasons})")
    notes = tuple(f"{model} has no result: {reason}." for model, reason in course.failures.items())
    selection = Selection("race", course.trainings, notes)
    comparison = compare(selection)
    verdict = pronounce(comparison)
    shown = Comparison("race", comparison.rows, comparison.contrasts, (verdict,), notes)
    report = write_report(out or course.directory / _REPORT, shown, selection)
    return Race(
        dataset=course.dataset,
        metric=comparison.rows[0].metric,
        protocol=_describe_protocol(request, course),
        standings=(*_rank(comparison.rows, course), *_failed(course)),
        contrasts=comparison.contrasts,
        verdict=verdict,
        report=report,
    )


def _describe_protocol(request: Request, course: Course) -> str:
    """What was the same for all models."""
    splits = max(1 + training.split for training in course.trainings)
    count = f"{splits} split{'' if splits == 1 else 's'}"
    if request.epochs is not None:
        return f"{request.epochs} epochs on each of {count}"
    if request.time_budget is None:
        return f"{count}, as many epochs as patience allows"
    return f"at most {format_duration(request.time_budget)} per model over {count}"


def _rank(rows: Sequence[Row], course: Course) -> list[Standing]:
    """The models with a result, best first."""
    front = find_front(rows)
    return [
        Standing(
            model=row.model,
            ours=row.model in FAMILY,
            status="out of time" if row.model in course.unfinished else "finished",
            mean=row.mean,
            std=row.std,
            splits=row.num_runs,
            train_seconds=row.train_seconds,
            peak_memory_mb=row.peak_memory_mb,
            num_parameters=row.num_parameters,
            on_front=row.model in front,
        )
        for row in rows
    ]


def _failed(course: Course) -> list[Standing]:
    """The models without a result."""
    return [
        Standing(model, ours=model in FAMILY, status="failed", reason=reason)
        for model, reason in course.failures.items()
    ]


def find_front(rows: Sequence[Row]) -> set[str]:
    """Models that no other beats in result and time; rows come best first."""
    front, fastest = set(), float("inf")
    for row in rows:
        if row.train_seconds is not None and row.train_seconds < fastest:
            front.add(row.model)
            fastest = row.train_seconds
    return front


def pronounce(comparison: Comparison) -> str:
    """Who wins, by how much against the best of the other side, and how surely."""
    rows = comparison.rows
    winner = rows[0]
    ours = winner.model in FAMILY
    side = "our" if ours else "the opponent"
    score = f"a test {metric_name(winner.metric)} of {format_score(winner)}"
    opening = f"On {winner.dataset}, {side} {winner.model} wins with {score}"
    rival = next((row for row in rows if (row.model in FAMILY) != ours), None)
    if rival is None:
        second = f", ahead of {rows[1].model} with {format_score(rows[1])}" if len(rows) > 1 else ""
        return f"{opening}{second}; nobody ran against it from the other side."
    name = "the best opponent" if ours else "our best"
    lead = abs(winner.mean - rival.mean)
    digits = max(decimals(winner.std), decimals(rival.std)) if winner.std and rival.std else 4
    behind = f"{name}, {rival.model}, reaches {format_score(rival)}, {lead:.{digits}f} less"
    return f"{opening}; {behind}{_certainty(comparison, winner, rival)}.{_times(winner, rival)}"


def _certainty(comparison: Comparison, winner: Row, rival: Row) -> str:
    pair = {winner.model, rival.model}
    found = next((one for one in comparison.contrasts if {one.first, one.second} == pair), None)
    if found is None or found.p_value is None:
        return ", on too few splits to tell it from chance"
    word = "significant" if found.significant else "not significant"
    few = "only " if found.num_pairs < MANY_PAIRS else ""
    return f" ({word}: p = {found.p_value:.2g}, paired over {few}{found.num_pairs} splits)"


def _times(winner: Row, rival: Row) -> str:
    if not winner.train_seconds or not rival.train_seconds:
        return ""
    ratio = rival.train_seconds / winner.train_seconds
    if 0.95 < ratio < 1.05:
        return ""
    faster, times = (winner, ratio) if ratio > 1 else (rival, 1 / ratio)
    return f" Of the two, {faster.model} trains {times:.1f} times faster."


def race_table(found: Race) -> "Table":
    """The standings as a table that fits a terminal of 80 columns."""
    from rich.table import Table

    title = f"Race on {found.dataset}: test {metric_name(found.metric)}, {found.protocol}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("model", style="bold")
    for heading in ("test", "time, s", "peak MB", "params"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for one in found.standings:
        name = f"{one.model} (ours)" if one.ours else one.model
        if one.mean is None:
            table.add_row(name, "–", "–", "–", "–", one.reason)
            continue
        score = f"{one.mean:.{decimals(one.std)}f}" + (
            "" if one.std is None else f" ± {one.std:.{decimals(one.std)}f}"
        )
        numbers = (one.train_seconds, one.peak_memory_mb, one.num_parameters)
        marks = [
            word for word, holds in (("front", one.on_front), (one.status, one.status != "finished")) if holds
        ]
        table.add_row(name, score, *(format_quantity(value) for value in numbers), ", ".join(marks))
    return table
