"""The comparison as one HTML file that needs no network: words, a sortable table, charts."""

import base64
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path

from pipeline.comparison.history import Selection, Training, metric_name
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
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
#: In the order they run; others, such as propagated features, come in between.
STAGES = ("ingest", "positions", "orders", "segments", "training")
PLAIN_STAGES = (("segments-", "segments"), ("propagated-", "propagated features"))
#: Settings in which models may differ without being compared under different conditions.
INDIFFERENT = frozenset(key for key, mark in marks_of(Config) if mark.repeats or mark.decides == "nothing")


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
    title = escape(_title(comparison))
    sections = [
        f'<header><h1>{title}</h1><p class="soft">{escape(_origin(selection))}</p></header>',
        *(f'<p class="lead">{escape(sentence)}</p>' for sentence in comparison.sentences),
        *(f'<p class="soft">{escape(note)}</p>' for note in comparison.notes),
        "<h2>Results</h2>",
        _results(comparison.rows),
        _contrasts(comparison.contrasts),
        *(_charts(dataset, selection.trainings) for dataset in _datasets(selection)),
        _figures(figures),
        _differences(selection.trainings),
        _runs(selection.trainings, tracking_url),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{title}</title><style>{_asset('report.css')}</style></head><body>"
        f"{''.join(sections)}<script>{_asset('report.js')}</script></body></html>\n"
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


def _results(rows: Sequence[Row]) -> str:
    metrics = {metric_name(row.metric) for row in rows}
    shown = f"test {metrics.pop()}" if len(metrics) == 1 else "test metric"
    several = len({row.dataset for row in rows}) > 1
    headings = ["model", *(["data set"] if several else []), shown, "best", "runs", "training, s"]
    headings += ["to 95 %, s", "nodes/s", "peak, MB", "parameters"]
    seen: set[str] = set()
    body = []
    for row in rows:
        winner = row.dataset not in seen
        seen.add(row.dataset)
        named = "" if not metrics else f"{metric_name(row.metric)} "
        cells = [_text(row.model), *([_text(row.dataset)] if several else [])]
        cells.append(_cell(row.mean, f"{named}{format_score(row)}"))
        best = f'<span title="run {escape(row.best_run)}">{row.best:.{decimals(row.std)}f}</span>'
        cells += [f'<td data-value="{row.best}">{best}</td>', _cell(row.num_runs)]
        cells += [_cell(value) for value in (row.train_seconds, row.seconds_to_95, row.rows_per_second)]
        cells += [_cell(row.peak_memory_mb), _cell(row.num_parameters)]
        body.append(f"<tr{' class=win' if winner else ''}>{''.join(cells)}</tr>")
    explained = (
        "Mean ± standard deviation over the runs of a model; costs are means, memory the largest. "
        "To 95 %: until the validation metric first reached 95 % of its best. Click a heading to sort."
    )
    return f'{_table(headings, body, num_text=1 + several, sortable=True)}<p class="soft">{explained}</p>'


def _contrasts(contrasts: Sequence[Contrast]) -> str:
    if not contrasts:
        return ""
    several = len({one.dataset for one in contrasts}) > 1
    headings = ["models", *(["data set"] if several else []), "n", "difference", "95 % interval", "p"]
    body = []
    for one in contrasts:
        digits = decimals(None if one.high is None else one.high - one.difference)
        between = "–"
        if one.low is not None and one.high is not None:
            between = f"{one.low:+.{digits}f} to {one.high:+.{digits}f}"
        p_value = (
            "not tested" if one.p_value is None else f"{one.p_value:.2g}{' *' if one.significant else ''}"
        )
        difference = "–" if math.isnan(one.difference) else f"{one.difference:+.{digits}f}"
        cells = [_text(f"{one.first} − {one.second}"), *([_text(one.dataset)] if several else [])]
        cells += [_cell(one.num_pairs), _cell(one.difference, difference.replace("-", "−"))]
        cells += [_cell(None, between.replace("-", "−")), _cell(one.p_value, p_value)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    explained = (
        "n: splits and seeds that both models were trained on. Paired t-test, two-sided, corrected by Holm; "
        f"* marks p below {SIGNIFICANCE}. Below n = {LEAST_PAIRS} nothing is tested, and below "
        f"{MANY_PAIRS} a small p is weak evidence: splits of a graph share nodes, so runs are related."
    )
    table = _table(headings, body, num_text=1 + several, sortable=True)
    return f'<h2>Differences</h2>{table}<p class="soft">{explained}</p>'


def _charts(dataset: str, trainings: Sequence[Training]) -> str:
    names = sorted({training.model for training in trainings})
    here = [training for training in trainings if training.dataset == dataset]
    metric = metric_name(here[0].metric)
    band = "Mean over the runs of a model; the band reaches from the lowest to the highest."
    ahead = "Large dots are means, the dashed line joins models that none beats in both directions."
    cards = [
        _card("Validation by epoch", line_chart(_bands(here, "val_metric"), "epoch", metric, names), band),
        _card("Training loss by epoch", line_chart(_bands(here, "train_loss"), "epoch", "loss", names), band),
        _card(
            "Validation by time",
            line_chart(_over_time(here), "time, s", metric, names),
            "One line a run.",
        ),
        _card("Time of the stages", stacked_chart(_stages(here), "s"), "Mean over the runs of a model."),
        _card("Result against time", _pareto(here, "train_seconds", "training time, s", names), ahead),
        _card("Result against memory", _pareto(here, "peak_memory_mb", "peak memory, MB", names), ahead),
    ]
    drawn = "".join(cards)
    return f'<h2>On {escape(dataset)}</h2><div class="cards">{drawn}</div>' if drawn else ""


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
                name = next((text for prefix, text in PLAIN_STAGES if stage.startswith(prefix)), stage)
                values.setdefault(name, []).append(seconds)
        order = sorted(values, key=lambda name: (STAGES.index(name) if name in STAGES else 2.5, name))
        found[model] = {name: statistics.fmean(values[name]) for name in order}
    return found


def _figures(figures: Sequence[Figure]) -> str:
    cards = []
    for figure in figures:
        picture = figure.drawing if figure.path is None else embed_picture(figure.path, figure.title)
        cards.append(_card(figure.title, picture, figure.caption, figure.wide))
    return f'<h2>Figures</h2><div class="cards">{"".join(cards)}</div>' if cards else ""


def embed_picture(path: Path, title: str) -> str:
    """A picture with its bytes in its address."""
    kind = "image/svg+xml" if path.suffix == ".svg" else "image/png"
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<div class="scroll"><img alt="{escape(title)}" src="data:{kind};base64,{data}"></div>'


def _differences(trainings: Sequence[Training]) -> str:
    """The parameters in which the compared models differ."""
    models = sorted({(t.dataset, t.model) for t in trainings})
    by_model = {(t.dataset, t.model): t.params for t in trainings}
    keys = sorted({key for params in by_model.values() for key in params} - INDIFFERENT)
    body = []
    for key in keys:
        values = [by_model[model].get(key, "–") for model in models]
        if len(set(values)) > 1:
            body.append(f"<tr>{_text(key)}{''.join(_text(value) for value in values)}</tr>")
    if not body:
        return ""
    several = len({dataset for dataset, _ in models}) > 1
    headings = ["parameter", *(f"{model} on {dataset}" if several else model for dataset, model in models)]
    return f"<h2>Configurations differ in</h2>{_table(headings, body, len(headings), sortable=False)}"


def _runs(trainings: Sequence[Training], tracking_url: str | None) -> str:
    several = len({training.dataset for training in trainings}) > 1
    body = []
    for t in sorted(trainings, key=lambda t: (t.dataset, t.model, t.split, t.seed)):
        shown = f'<code title="{escape(t.run_id)}">{escape(t.run_id[:10])}</code>'
        if tracking_url is not None:
            address = (
                f"{tracking_url.rstrip('/')}/#/experiments/{t.experiment_id}/runs/{t.run_id}{PAGE_QUERY}"
            )
            shown = f'<a href="{escape(address)}">{shown}</a>'
        cells = [_text(t.model), *([_text(t.dataset)] if several else [])]
        cells += [f'<td class="text">{shown}</td>', _cell(t.split)]
        cells += [_cell(t.seed), _cell(t.test_metric, f"{t.test_metric:.4f}"), _cell(t.train_seconds)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    headings = ["model", *(["data set"] if several else []), "MLflow run", "split", "seed", "test metric"]
    headings.append("training, s")
    local = tracking_url is not None and tracking_url.startswith(LOCAL_ADDRESS)
    told = '<p class="soft">The links open while <code>cocn ui</code> runs.</p>' if local else ""
    return f"<h2>Runs</h2>{_table(headings, body, 2 + several, sortable=True)}{told}"


def _table(headings: Sequence[str], body: Sequence[str], num_text: int, sortable: bool) -> str:
    cells = []
    for index, heading in enumerate(headings):
        shown = f'<button type="button">{escape(heading)}</button>' if sortable else escape(heading)
        cells.append(f'<th scope="col"{" class=text" if index < num_text else ""}>{shown}</th>')
    kind = ' class="sortable"' if sortable else ""
    head = f"<thead><tr>{''.join(cells)}</tr></thead>"
    return f'<div class="scroll"><table{kind}>{head}<tbody>{"".join(body)}</tbody></table></div>'


def _card(title: str, drawing: str, caption: str = "", wide: bool = False) -> str:
    if not drawing:
        return ""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    kind = " class=wide" if wide else ""
    return f"<figure{kind}><h3>{escape(title)}</h3>{drawing}{below}</figure>"


def _text(value: str) -> str:
    return f'<td class="text">{escape(value)}</td>'


def _cell(value: float | None, shown: str | None = None) -> str:
    shown = format_quantity(value) if shown is None else shown
    return f'<td data-value="{"" if value is None else value}">{escape(shown)}</td>'


def _datasets(selection: Selection) -> list[str]:
    return sorted({training.dataset for training in selection.trainings})


def _asset(name: str) -> str:
    return (files("pipeline.comparison") / "assets" / name).read_text(encoding="utf-8")
