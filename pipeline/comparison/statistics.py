"""Trainings side by side: one row per model and dataset, paired tests, and a summary in words."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from pipeline.comparison.history import Selection, Training, metric_name

if TYPE_CHECKING:
    from rich.table import Table

SIGNIFICANCE = 0.05
#: With fewer pairs nothing is tested: the result would be chance.
LEAST_PAIRS = 3
#: Below this number, that of published splits, pairs are called few.
MANY_PAIRS = 10


@dataclass(frozen=True)
class Row:
    """A model on a dataset, over its splits and seeds."""

    dataset: str
    model: str
    metric: str
    num_runs: int
    mean: float
    std: float | None
    """Sample standard deviation; None for a single run."""
    best: float
    best_run: str
    train_seconds: float | None
    seconds_to_95: float | None
    rows_per_second: float | None
    peak_memory_mb: float | None
    num_parameters: int | None


@dataclass(frozen=True)
class Contrast:
    """Two models on the splits and seeds that both were trained on."""

    dataset: str
    first: str
    second: str
    num_pairs: int
    difference: float
    """Mean of first minus second."""
    low: float | None
    """Lower end of the 95 % confidence interval of the difference."""
    high: float | None
    p_value: float | None
    """Two-sided paired t-test, corrected by Holm over the pairs of a dataset; None below three pairs."""
    significant: bool = False
    """Whether the corrected p-value is below the level."""


@dataclass(frozen=True)
class Comparison:
    """What is known about the models of an experiment."""

    experiment: str
    rows: tuple[Row, ...]
    contrasts: tuple[Contrast, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]


def compare(selection: Selection) -> Comparison:
    """Group trainings by dataset and model, test the differences, and say what they show."""
    rows: list[Row] = []
    contrasts: list[Contrast] = []
    sentences: list[str] = []
    for dataset in sorted({training.dataset for training in selection.trainings}):
        here = [training for training in selection.trainings if training.dataset == dataset]
        upward = here[0].higher_is_better
        models = sorted({training.model for training in here})
        ranked = [_summarise([t for t in here if t.model == model]) for model in models]
        ranked.sort(key=lambda row: row.mean, reverse=upward)
        pairs = correct_by_holm([contrast(here, a.model, b.model) for a, b in combinations(ranked, 2)])
        rows += ranked
        contrasts += pairs
        sentences.append(_describe(ranked, pairs))
    return Comparison(selection.experiment, tuple(rows), tuple(contrasts), tuple(sentences), selection.notes)


def _summarise(trainings: Sequence[Training]) -> Row:
    """The row of one model on one dataset."""
    first = trainings[0]
    values = [training.test_metric for training in trainings]
    pick = max if first.higher_is_better else min
    best = pick(trainings, key=lambda training: training.test_metric)
    parameters = {t.num_parameters for t in trainings if t.num_parameters is not None}
    return Row(
        dataset=first.dataset,
        model=first.model,
        metric=first.metric,
        num_runs=len(trainings),
        mean=statistics.fmean(values),
        std=statistics.stdev(values) if len(values) > 1 else None,
        best=best.test_metric,
        best_run=best.run_id,
        train_seconds=_mean(t.train_seconds for t in trainings),
        seconds_to_95=_mean(t.seconds_to_95 for t in trainings),
        rows_per_second=_mean(t.rows_per_second for t in trainings),
        peak_memory_mb=max(
            (t.peak_memory_mb for t in trainings if t.peak_memory_mb is not None), default=None
        ),
        num_parameters=max(parameters, default=None),
    )


def contrast(trainings: Iterable[Training], first: str, second: str) -> Contrast:
    """Compare two models on their common splits and seeds."""
    results = {(t.model, t.split, t.seed): t for t in trainings}
    dataset = next(iter(results.values())).dataset
    common = [key[1:] for key in results if key[0] == first and (second, *key[1:]) in results]
    differences = [results[(first, *key)].test_metric - results[(second, *key)].test_metric for key in common]
    if len(differences) < LEAST_PAIRS:
        mean = statistics.fmean(differences) if differences else math.nan
        return Contrast(dataset, first, second, len(differences), mean, None, None, None)
    mean, half, p_value = paired_t_test(differences)
    return Contrast(dataset, first, second, len(differences), mean, mean - half, mean + half, p_value)


def paired_t_test(differences: Sequence[float]) -> tuple[float, float, float]:
    """Mean difference, half of its 95 % confidence interval, and the two-sided p-value against zero."""
    from scipy import stats

    mean = statistics.fmean(differences)
    if len(set(differences)) == 1:  # no spread: the test statistic is undefined
        return mean, 0.0, 1.0 if mean == 0 else 0.0
    test = stats.ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(0.95)
    return mean, float(high - low) / 2, float(test.pvalue)


def correct_by_holm(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Raise p-values so that the probability of any false alarm among them stays below the level."""
    tested = sorted((c for c in contrasts if c.p_value is not None), key=lambda c: c.p_value or 0.0)
    corrected: dict[tuple[str, str], float] = {}
    highest = 0.0
    for rank, one in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - rank) * (one.p_value or 0.0)))
        corrected[one.first, one.second] = highest
    return [c if c.p_value is None else _with_p_value(c, corrected[c.first, c.second]) for c in contrasts]


def _describe(rows: Sequence[Row], contrasts: Sequence[Contrast]) -> str:
    """One or two sentences on a dataset: who wins, by how much, how surely, and at what cost."""
    winner = rows[0]
    metric = metric_name(winner.metric)
    opening = f"On {winner.dataset}, {winner.model} reaches a test {metric} of {format_score(winner)}"
    if len(rows) == 1:
        return f"{opening}."
    runner_up = rows[1]
    summary = f"{opening} and {runner_up.model} {format_score(runner_up)}; {_certainty(contrasts[0])}."
    costs = [
        _advantage(winner, runner_up, winner.train_seconds, runner_up.train_seconds, "trains", "faster"),
        _advantage(
            winner, runner_up, winner.peak_memory_mb, runner_up.peak_memory_mb, "needs", "less memory"
        ),
    ]
    if len(rows) > 2:
        costs = [
            _cheapest(rows, "train_seconds", "trains fastest", "s"),
            _cheapest(rows, "peak_memory_mb", "needs least memory", "MB"),
        ]
    cost = " and ".join(filter(None, costs))
    return f"{summary} {cost[0].upper()}{cost[1:]}." if cost else summary


def format_score(row: Row) -> str:
    """`0.783 ± 0.027`: two digits of the deviation, and as many of the mean; `0.9120` for a single run."""
    digits = decimals(row.std)
    return f"{row.mean:.{digits}f}" + ("" if row.std is None else f" ± {row.std:.{digits}f}")


def decimals(uncertainty: float | None) -> int:
    """Decimals that show two digits of an uncertainty."""
    if not uncertainty:
        return 4
    return min(max(1 - math.floor(math.log10(uncertainty)), 2), 5)


def format_quantity(value: float | None) -> str:
    """Three digits, or all before the point: `0.799`, `1.12`, `28.0`, `1,284`."""
    if value is None:
        return "–"
    if value >= 100 or isinstance(value, int):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def comparison_table(comparison: Comparison) -> "Table":
    """The rows as a table that fits a terminal of 80 columns."""
    from rich.table import Table

    datasets = {row.dataset for row in comparison.rows}
    metrics = {metric_name(row.metric) for row in comparison.rows}
    title = f"Experiment {comparison.experiment}: test {' and '.join(sorted(metrics))}"
    title += f" on {', '.join(sorted(datasets))}"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    if len(datasets) > 1:
        table.add_column("dataset")
    table.add_column("model", style="bold")
    for heading in ("test", "runs", "train s", "to 95 %", "rows/s", "peak MB", "params"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparison.rows:
        costs = (row.train_seconds, row.seconds_to_95, row.rows_per_second, row.peak_memory_mb)
        numbers = [format_quantity(value) for value in (*costs, row.num_parameters)]
        name = [row.dataset, row.model] if len(datasets) > 1 else [row.model]
        table.add_row(*name, format_score(row), str(row.num_runs), *numbers)
    return table


def _certainty(contrast: Contrast) -> str:
    if contrast.p_value is None:
        return (
            f"over {contrast.num_pairs} common splits and seeds, fewer than {LEAST_PAIRS}, chance cannot be "
            "told from a difference"
        )
    word = "significant" if contrast.significant else "not significant"
    p_value = "p < 0.001" if contrast.p_value < 0.001 else f"p = {contrast.p_value:.2g}"
    few = "only " if contrast.num_pairs < MANY_PAIRS else ""
    half = None if contrast.high is None else contrast.high - contrast.difference
    return (
        f"the difference of {abs(contrast.difference):.{decimals(half)}f} is {word} "
        f"({p_value}, paired over {few}{contrast.num_pairs} common splits and seeds)"
    )


def _cheapest(rows: Sequence[Row], cost: str, words: str, unit: str) -> str:
    known = [row for row in rows if getattr(row, cost) is not None]
    if len(known) < 2:
        return ""
    best, second = sorted(known, key=lambda row: float(getattr(row, cost)))[:2]
    if 1.05 * float(getattr(best, cost)) > float(getattr(second, cost)):
        return ""
    return f"{best.model} {words} ({format_quantity(getattr(best, cost))} {unit})"


def _advantage(a: Row, b: Row, cost_a: float | None, cost_b: float | None, verb: str, gain: str) -> str:
    if not cost_a or not cost_b:
        return ""
    better, ratio = (a, cost_b / cost_a) if cost_a <= cost_b else (b, cost_a / cost_b)
    return f"{better.model} {verb} {ratio:.1f} times {gain}" if ratio >= 1.05 else ""


def _with_p_value(one: Contrast, p_value: float) -> Contrast:
    return replace(one, p_value=p_value, significant=p_value < SIGNIFICANCE)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
