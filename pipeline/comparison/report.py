"""The comparison as one HTML file that needs no network: words, a sortable table, charts."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline.comparison.history import Selection, Training, metric_name
from pipeline.comparison.page import Card, Cell, Section, Table, TableRow, embed_picture, fill_template
from pipeline.comparison.statistics import (
    LEAST_PAIRS,
    MANY_PAIRS,
    SIGNIFICANCE,
    Comparison,
    Contrast,
    Row,
    decimals,
    format_quantity,
    format_score,
)
from pipeline.comparison.svg_charts import Mark, Series, line_chart, scatter_chart, stacked_chart
from pipeline.config.loading import Config
from pipeline.config.marks import marks_of
from pipeline.storage.files import replace_text
from pipeline.tracking.mlflow_store import PAGE_QUERY

#: Where `cocn ui` serves a file or a database by default.
LOCAL_ADDRESS = "http://127.0.0.1:5000"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: In the order they run; others, such as propagated features, come in between.
STAGES = ("ingest", "positions", "orders", "segments", "training")
_PLAIN_STAGES = (("segments-", "segments"), ("propagated-", "propagated features"))
#: Settings in which models may differ without being compared under different conditions.
_INDIFFERENT = frozenset(key for key, mark in marks_of(Config) if mark.repeats or mark.decides == "nothing")


@dataclass(frozen=True)
class Figure:
    """A picture or a table made elsewhere, to stand in the report."""

    title: str
    path: Path | None = None
    """An SVG or PNG file."""
    caption: str = ""
    drawing: str = ""
    """SVG or HTML of our own making, in place of a file."""
    wide: bool = False
    """Whether it takes the whole width."""


def write_report(
    path: Path,
    comparison: Comparison,
    selection: Selection,
    *,
    figures: Sequence[Figure] = (),
    tracking_url: str | None = None,
) -> Path:
    """Write the report in one piece.

    Args:
        path: The HTML file.
        comparison: What was compared.
        selection: The trainings behind it, with their curves.
        figures: Further pictures: permuted adjacency, coverage, a confusion matrix.
        tracking_url: Address of the MLflow server; run ids become links to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, render_report(comparison, selection, figures, tracking_url))
    return path


def render_report(
    comparison: Comparison,
    selection: Selection,
    figures: Sequence[Figure] = (),
    tracking_url: str | None = None,
) -> str:
    """The report as text."""
    sections = [
        _results(comparison.rows),
        _contrasts(comparison.contrasts),
        *(_charts(dataset, selection.trainings) for dataset in _datasets(selection)),
        _figures(figures),
        _differences(selection.trainings),
        _runs(selection.trainings, tracking_url),
    ]
    return fill_template(
        "report.html.j2",
        title=_title(comparison),
        origin=_origin(selection),
        comparison=comparison,
        sections=[section for section in sections if section.table or section.cards],
        policy=_POLICY,
    )


def _title(comparison: Comparison) -> str:
    models = list(dict.fromkeys(row.model for row in comparison.rows))
    datasets = sorted({row.dataset for row in comparison.rows})
    return f"{_listed(models)} on {_listed(datasets)}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _origin(selection: Selection) -> str:
    """Where the numbers come from: how many trainings, when, of which source, on what."""
    some = selection.trainings
    newest = datetime.fromtimestamp(max(training.start for training in some) / 1000, tz=UTC)
    count = f"{len(some)} {'training' if len(some) == 1 else 'trainings'}"
    parts = [f"{count} of experiment {selection.experiment}", f"{newest:%d %B %Y}"]
    parts += sorted({f"revision {training.revision}" for training in some if training.revision})
    parts += sorted({training.device for training in some if training.device})
    return " · ".join(parts)


def _results(rows: Sequence[Row]) -> Section:
    metrics = {metric_name(row.metric) for row in rows}
    shown = f"test {metrics.pop()}" if len(metrics) == 1 else "test metric"
    several = len({row.dataset for row in rows}) > 1
    headings = ["model", *(["dataset"] if several else []), shown, "best", "runs", "training, s"]
    headings += ["to 95 %, s", "nodes/s", "peak, MB", "parameters"]
    seen: set[str] = set()
    body = []
    for row in rows:
        winner = row.dataset not in seen
        seen.add(row.dataset)
        named = "" if not metrics else f"{metric_name(row.metric)} "
        cells = [Cell(row.model), *([Cell(row.dataset)] if several else [])]
        cells.append(Cell(f"{named}{format_score(row)}", row.mean))
        best = f"{row.best:.{decimals(row.std)}f}"
        cells += [Cell(best, row.best, tip=f"run {row.best_run}"), _quantity(row.num_runs)]
        cells += [_quantity(value) for value in (row.train_seconds, row.seconds_to_95, row.rows_per_second)]
        cells += [_quantity(row.peak_memory_mb), _quantity(row.num_parameters)]
        body.append(TableRow(cells, winner))
    explained = (
        "Mean ± standard deviation over the runs of a model; costs are means, memory the largest. "
        "To 95 %: until the validation metric first reached 95 % of its best. Click a heading to sort."
    )
    return Section("Results", Table(headings, body, num_text=1 + several), note=explained)


def _contrasts(contrasts: Sequence[Contrast]) -> Section:
    if not contrasts:
        return Section("Differences")
    several = len({contrast.dataset for contrast in contrasts}) > 1
    headings = ["models", *(["dataset"] if several else []), "n", "difference", "95 % interval", "p"]
    body = []
    for contrast in contrasts:
        low, high, difference = contrast.low, contrast.high, contrast.difference
        digits = decimals(None if high is None else high - difference)
        between = "–"
        if low is not None and high is not None:
            between = f"{low:+.{digits}f} to {high:+.{digits}f}".replace("-", "−")
        p_value = "not tested"
        if contrast.p_value is not None:
            p_value = f"{contrast.p_value:.2g}{' *' if contrast.significant else ''}"
        shown = "–" if math.isnan(difference) else f"{difference:+.{digits}f}".replace("-", "−")
        cells = [Cell(f"{contrast.first} − {contrast.second}")]
        cells += [Cell(contrast.dataset)] if several else []
        cells += [_quantity(contrast.num_pairs), Cell(shown, difference)]
        body.append(TableRow([*cells, Cell(between), Cell(p_value, contrast.p_value)]))
    explained = (
        "n: splits and seeds that both models were trained on. Paired t-test, two-sided, corrected by Holm; "
        f"* marks p below {SIGNIFICANCE}. Below n = {LEAST_PAIRS} nothing is tested, and below "
        f"{MANY_PAIRS} a small p is weak evidence: splits of a graph share nodes, so runs are related."
    )
    return Section("Differences", Table(headings, body, num_text=1 + several), note=explained)


def _charts(dataset: str, trainings: Sequence[Training]) -> Section:
    names = sorted({training.model for training in trainings})
    here = [training for training in trainings if training.dataset == dataset]
    metric = metric_name(here[0].metric)
    band = "Mean over the runs of a model; the band reaches from the lowest to the highest."
    ahead = "Large dots are means, the dashed line joins models that none beats in both directions."
    cards = [
        Card("Validation by epoch", line_chart(_bands(here, "val_metric"), "epoch", metric, names), band),
        Card("Training loss by epoch", line_chart(_bands(here, "train_loss"), "epoch", "loss", names), band),
        Card(
            "Validation by time",
            line_chart(_over_time(here), "time, s", metric, names),
            "One line per run.",
        ),
        Card("Time of the stages", stacked_chart(_stages(here), "s"), "Mean over the runs of a model."),
        Card("Result against time", _pareto(here, "train_seconds", "training time, s", names), ahead),
        Card("Result against memory", _pareto(here, "peak_memory_mb", "peak memory, MB", names), ahead),
    ]
    return Section(f"On {dataset}", cards=[card for card in cards if card.drawing])


def _bands(trainings: Sequence[Training], key: str) -> list[Series]:
    """The mean over a model's trainings at each epoch, with the lowest and highest around it."""
    series = []
    for model in sorted({training.model for training in trainings}):
        curves = [t.curves[key] for t in trainings if t.model == model and key in t.curves]
        by_step: dict[int, list[float]] = {}
        for curve in curves:
            for step, value in zip(curve.steps, curve.values, strict=True):
                by_step.setdefault(step, []).append(value)
        steps = sorted(by_step)
        columns = [by_step[step] for step in steps]
        several = len(curves) > 1
        series.append(
            Series(
                model,
                steps,
                [statistics.fmean(column) for column in columns],
                [min(column) for column in columns] if several else (),
                [max(column) for column in columns] if several else (),
            )
        )
    return series


def _over_time(trainings: Sequence[Training]) -> list[Series]:
    found = [(t.model, t.curves["val_metric"]) for t in trainings if "val_metric" in t.curves]
    return [Series(model, curve.seconds, curve.values) for model, curve in found]


def _pareto(trainings: Sequence[Training], cost: str, label: str, names: Sequence[str]) -> str:
    """Results against a cost: every run, the mean of every model, and the front of the means."""
    known = [(t, float(getattr(t, cost))) for t in trainings if getattr(t, cost) is not None]
    marks = [
        Mark(t.model, value, t.test_metric, f"split {t.split}, seed {t.seed}: {t.test_metric:.4f}")
        for t, value in known
    ]
    means = []
    for model in sorted({t.model for t, _ in known}):
        mine = [(value, t.test_metric) for t, value in known if t.model == model]
        x, y = (statistics.fmean(column) for column in zip(*mine, strict=True))
        means.append(Mark(model, x, y, f"mean: {y:.4f}", strong=True))
    front = pareto_front([(mark.x, mark.y) for mark in means], trainings[0].higher_is_better)
    metric = metric_name(trainings[0].metric)
    return scatter_chart([*marks, *means], label, f"test {metric}", names, front)


def pareto_front(points: Sequence[tuple[float, float]], upward: bool) -> list[tuple[float, float]]:
    """Points of (cost, result) that no other beats in both, by rising cost."""
    sign = 1 if upward else -1
    front: list[tuple[float, float]] = []
    for cost, result in sorted(points, key=lambda point: (point[0], -sign * point[1])):
        if not front or sign * result > sign * front[-1][1]:
            front.append((cost, result))
    return front


def _stages(trainings: Sequence[Training]) -> dict[str, dict[str, float]]:
    """Mean seconds of each stage, by model; the shards of several splits are one stage."""
    found: dict[str, dict[str, float]] = {}
    for model in sorted({training.model for training in trainings}):
        values: dict[str, list[float]] = {}
        for training in (t for t in trainings if t.model == model):
            train = {} if training.train_seconds is None else {"training": training.train_seconds}
            for stage, seconds in {**training.stages, **train}.items():
                name = next((text for prefix, text in _PLAIN_STAGES if stage.startswith(prefix)), stage)
                values.setdefault(name, []).append(seconds)
        order = sorted(values, key=lambda name: (STAGES.index(name) if name in STAGES else 2.5, name))
        found[model] = {name: statistics.fmean(values[name]) for name in order}
    return found


def _figures(figures: Sequence[Figure]) -> Section:
    cards = []
    for figure in figures:
        picture = figure.drawing if figure.path is None else embed_picture(figure.path, figure.title)
        cards.append(Card(figure.title, picture, figure.caption, figure.wide))
    return Section("Figures", cards=cards)


def _differences(trainings: Sequence[Training]) -> Section:
    """The parameters in which the compared models differ."""
    models = sorted({(t.dataset, t.model) for t in trainings})
    by_model = {(t.dataset, t.model): t.params for t in trainings}
    keys = sorted({key for params in by_model.values() for key in params} - _INDIFFERENT)
    body = []
    for key in keys:
        values = [by_model[model].get(key, "–") for model in models]
        if len(set(values)) > 1:
            body.append(TableRow([Cell(key), *map(Cell, values)]))
    several = len({dataset for dataset, _ in models}) > 1
    headings = ["parameter", *(f"{model} on {dataset}" if several else model for dataset, model in models)]
    table = Table(headings, body, num_text=len(headings), sortable=False) if body else None
    return Section("Configurations differ in", table)


def _runs(trainings: Sequence[Training], tracking_url: str | None) -> Section:
    several = len({training.dataset for training in trainings}) > 1
    body = []
    for t in sorted(trainings, key=lambda t: (t.dataset, t.model, t.split, t.seed)):
        address = ""
        if tracking_url is not None:
            root = tracking_url.rstrip("/")
            address = f"{root}/#/experiments/{t.experiment_id}/runs/{t.run_id}{PAGE_QUERY}"
        cells = [Cell(t.model), *([Cell(t.dataset)] if several else [])]
        cells += [Cell(t.run_id[:10], tip=t.run_id, address=address, code=True), _quantity(t.split)]
        cells += [_quantity(t.seed), Cell(f"{t.test_metric:.4f}", t.test_metric), _quantity(t.train_seconds)]
        body.append(TableRow(cells))
    headings = ["model", *(["dataset"] if several else []), "MLflow run", "split", "seed", "test metric"]
    table = Table([*headings, "training, s"], body, num_text=2 + several)
    local = tracking_url is not None and tracking_url.startswith(LOCAL_ADDRESS)
    return Section("Runs", table, note="The links open while `cocn ui` runs." if local else "")


def _quantity(value: float | None) -> Cell:
    return Cell(format_quantity(value), value)


def _datasets(selection: Selection) -> list[str]:
    return sorted({training.dataset for training in selection.trainings})
