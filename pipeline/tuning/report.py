"""The page of a search: the best trial, what mattered, parallel coordinates, and every trial."""

from collections.abc import Sequence
from html import escape

from pipeline.comparison.page import fill_template
from pipeline.tuning.outcome import Trial, Tuned
from pipeline.tuning.space import Space

WIDTH, HEIGHT, MARGIN, TOP = 960, 380, 70, 40


def render_report(tuned: Tuned, space: Space) -> str:
    """A self-contained HTML page."""
    return fill_template(
        "tuning.html.j2",
        tuned=tuned,
        counts=_counts(tuned.trials),
        importance=sorted(tuned.importance.items(), key=lambda pair: -pair[1]),
        drawing=draw_trials(tuned, space),
        trials=sorted(tuned.trials, key=lambda trial: -(trial.val_metric or float("-inf"))),
        shown=_shown,
    )


def draw_trials(tuned: Tuned, space: Space) -> str:
    """Parallel coordinates as SVG: one axis per setting and one for the score, one line per trial."""
    scored = [trial for trial in tuned.trials if trial.val_metric is not None]
    scores = [trial.val_metric for trial in scored if trial.val_metric is not None]
    low, high = min(scores), max(scores)
    columns = [*space, f"validation {tuned.metric}"]
    step = (WIDTH - 2 * MARGIN) / max(1, len(columns) - 1)
    parts = []
    for number, name in enumerate(columns):
        x = MARGIN + number * step
        ticks = space[name].ticks() if name in space else ((0.0, f"{low:.4f}"), (1.0, f"{high:.4f}"))
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - TOP}" stroke="currentColor"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{TOP - 20}" text-anchor="middle">{escape(name)}</text>')
        parts += [
            f'<text x="{x + 5:.1f}" y="{_height(place):.1f}" dy="4">{escape(word)}</text>'
            for place, word in ticks
        ]
    for trial in sorted(scored, key=lambda one: one.number == tuned.best.number):
        heights = [space[key].place(trial.point[key]) for key in space]
        goodness = 1.0 if high == low else ((trial.val_metric or low) - low) / (high - low)
        points = " ".join(
            f"{MARGIN + number * step:.1f},{_height(place):.1f}"
            for number, place in enumerate([*heights, goodness])
        )
        kind = "line best" if trial.number == tuned.best.number else "line"
        colour = f"hsl({220 - 190 * goodness:.0f} 70% 50%)"
        title = f"<title>trial {trial.number}: {trial.val_metric:.4f}</title>"
        parts.append(f'<polyline class="{kind}" stroke="{colour}" points="{points}">{title}</polyline>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" width="100%">{"".join(parts)}</svg>'


def _height(place: float) -> float:
    return HEIGHT - TOP - place * (HEIGHT - 2 * TOP)


def _counts(trials: Sequence[Trial]) -> str:
    kinds = ("finished", "stopped", "failed", "unfinished")
    counts = [(sum(trial.status == kind for trial in trials), kind) for kind in kinds]
    return f"{len(trials)} trials: " + ", ".join(f"{count} {kind}" for count, kind in counts if count)


def _shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
