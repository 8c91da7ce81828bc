"""The comparison as one HTML file that needs no network: words, a sortable table, charts."""

import base64
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path

from pipeline.charts import Mark, Series, bar_chart, line_chart, scatter_chart
from pipeline.comparison import Comparison, Contrast, Row, format_score
from pipeline.tracking import PAGE_QUERY
from pipeline.trainings import Selection, Training

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
PER_TRAINING = frozenset({"data.split", "train.seed", "tracking.uri", "output", "data.store"})


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
    temporary = path.with_suffix(".tmp")
    temporary.write_text(render_report(comparison, selection, figures, tracking_url), encoding="utf-8")
    temporary.replace(path)
    return path


def render_report(
    comparison: Comparison,
    selection: Selection,
    figures: Sequence[Figure] = (),
    tracking_url: str | None = None,
) -> str:
    """The report as text."""
    title = escape(f"Comparison: {comparison.experiment}")
    sections = [
        f"<h1>{title}</h1>",
        *(f'<p class="lead">{escape(sentence)}</p>' for sentence in comparison.sentences),
        *(f'<p class="soft">{escape(note)}</p>' for note in comparison.notes),
        "<h2>Results</h2>",
        _results(comparison.rows),
        _contrasts(comparison.contrasts),
        *(_charts(dataset, selection.trainings) for dataset in _datasets(selection)),
        _stages(selection.trainings),
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


def _results(rows: Sequence[Row]) -> str:
    headings = ["data set", "model", "test metric", "best", "runs", "train, s", "s to 95 %"]
    headings += ["rows/s", "peak MB", "parameters"]
    seen: set[str] = set()
    body = []
    for row in rows:
        winner = row.dataset not in seen
        seen.add(row.dataset)
        cells = [_text(row.dataset), _text(row.model), _cell(row.mean, f"{row.metric} {format_score(row)}")]
        cells += [_cell(row.best, f"{row.best:.4f}"), _cell(row.num_runs)]
        cells += [_cell(value) for value in (row.train_seconds, row.seconds_to_95, row.rows_per_second)]
        cells += [_cell(row.peak_memory_mb), _cell(row.num_parameters)]
        body.append(f"<tr{' class=win' if winner else ''}>{''.join(cells)}</tr>")
    return _table(headings, body, num_text=2, sortable=True)


def _contrasts(contrasts: Sequence[Contrast]) -> str:
    if not contrasts:
        return ""
    headings = ["data set", "first", "second", "common splits and seeds", "difference", "95 % interval", "p"]
    body = []
    for one in contrasts:
        between = "–" if one.low is None or one.high is None else f"{one.low:+.4f} to {one.high:+.4f}"
        p_value = "–" if one.p_value is None else f"{one.p_value:.2g}{' *' if one.significant else ''}"
        cells = [_text(one.dataset), _text(one.first), _text(one.second), _cell(one.num_pairs)]
        cells += [
            _cell(one.difference, _signed(one.difference)),
            _cell(None, between),
            _cell(one.p_value, p_value),
        ]
        body.append(f"<tr>{''.join(cells)}</tr>")
    explained = "Paired t-test, two-sided, corrected by Holm; * marks p below 0.05."
    table = _table(headings, body, num_text=3, sortable=True)
    return f'<h2>Differences</h2>{table}<p class="soft">{explained}</p>'


def _charts(dataset: str, trainings: Sequence[Training]) -> str:
    names = sorted({training.model for training in trainings})
    here = [training for training in trainings if training.dataset == dataset]
    metric = here[0].metric
    cards = [
        _card("Validation by epoch", line_chart(_bands(here, "val_metric"), "epoch", metric, names)),
        _card("Validation by time", line_chart(_over_time(here), "seconds", metric, names)),
        _card("Training loss", line_chart(_bands(here, "train_loss"), "epoch", "loss", names)),
        _card(
            "Accuracy against time",
            scatter_chart(_marks(here, "train_seconds"), "training, s", f"test {metric}", names),
        ),
        _card(
            "Accuracy against memory",
            scatter_chart(_marks(here, "peak_memory_mb"), "peak memory, MB", f"test {metric}", names),
        ),
    ]
    drawn = "".join(cards)
    return f'<h2>{escape(dataset)}</h2><div class="cards">{drawn}</div>' if drawn else ""


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


def _marks(trainings: Sequence[Training], cost: str) -> list[Mark]:
    found = [(t, getattr(t, cost)) for t in trainings]
    return [
        Mark(t.model, value, t.test_metric, f"split {t.split}, seed {t.seed}: {t.test_metric:.4f}")
        for t, value in found
        if value is not None
    ]


def _stages(trainings: Sequence[Training]) -> str:
    values: dict[str, list[float]] = {}
    for training in trainings:
        train = {} if training.train_seconds is None else {"train": training.train_seconds}
        for stage, seconds in {**training.stages, **train}.items():
            values.setdefault(f"{training.model}: {stage}", []).append(seconds)
    bars = [(name, statistics.fmean(seconds)) for name, seconds in values.items()]
    card = _card("Mean time of a stage", bar_chart(bars, "s"))
    return f'<h2>Stages</h2><div class="cards">{card}</div>' if card else ""


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
    return f'<img alt="{escape(title)}" src="data:{kind};base64,{data}">'


def _differences(trainings: Sequence[Training]) -> str:
    """The parameters in which the compared models differ."""
    models = sorted({(t.dataset, t.model) for t in trainings})
    by_model = {(t.dataset, t.model): t.params for t in trainings}
    keys = sorted({key for params in by_model.values() for key in params} - PER_TRAINING)
    body = []
    for key in keys:
        values = [by_model[model].get(key, "–") for model in models]
        if len(set(values)) > 1:
            body.append(f"<tr>{_text(key)}{''.join(_text(value) for value in values)}</tr>")
    if not body:
        return ""
    headings = ["parameter", *(f"{model} on {dataset}" for dataset, model in models)]
    return f"<h2>Configurations differ in</h2>{_table(headings, body, len(headings), sortable=False)}"


def _runs(trainings: Sequence[Training], tracking_url: str | None) -> str:
    body = []
    for t in sorted(trainings, key=lambda t: (t.dataset, t.model, t.split, t.seed)):
        shown = f"<code>{escape(t.run_id)}</code>"
        if tracking_url is not None:
            address = (
                f"{tracking_url.rstrip('/')}/#/experiments/{t.experiment_id}/runs/{t.run_id}{PAGE_QUERY}"
            )
            shown = f'<a href="{escape(address)}">{shown}</a>'
        cells = [_text(t.dataset), _text(t.model), f'<td class="text">{shown}</td>', _cell(t.split)]
        cells += [_cell(t.seed), _cell(t.test_metric, f"{t.test_metric:.4f}"), _cell(t.train_seconds)]
        body.append(f"<tr>{''.join(cells)}</tr>")
    headings = ["data set", "model", "MLflow run", "split", "seed", "test metric", "training, s"]
    return f"<h2>Runs</h2>{_table(headings, body, 3, sortable=True)}"


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
    if shown is None:
        shown = (
            "–"
            if value is None
            else f"{value:,.0f}"
            if value >= 100 or value == int(value)
            else f"{value:.3g}"
        )
    return f'<td data-value="{"" if value is None else value}">{escape(shown)}</td>'


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.4f}"


def _datasets(selection: Selection) -> list[str]:
    return sorted({training.dataset for training in selection.trainings})


def _asset(name: str) -> str:
    return (files("pipeline") / "assets" / name).read_text(encoding="utf-8")
