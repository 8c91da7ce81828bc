"""Charts as SVG text: no library, no network, colours from the surrounding page."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 480, 290
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 48
_NUM_COLOURS = 8
_LARGEST_LABELLED_MATRIX = 10
#: Largest ratio between costs that are drawn on a linear scale.
_WIDE_RATIO = 20
SIDE, BAR_STEP = 8, 50
#: Parts of a bar start with colours that few models use.
_PART_COLOUR = 4


@dataclass(frozen=True)
class Series:
    """A line, and a band around it."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Mark:
    """A point of a scatter chart."""

    name: str
    x: float
    y: float
    text: str = ""
    strong: bool = False
    """Whether it summarises several others: a mean."""


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels, with readable ticks."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values between the ends, about five."""
        if self.logarithmic:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1, 2, 5) if len(powers) < 5 else (1,)
            values = [factor * 10.0**power for power in powers for factor in factors]
            return [value for value in values if self.low <= value <= self.high]
        step = nice_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


def line_chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    names: Sequence[str],
    *,
    notes: Mapping[str, str] | None = None,
    diagonal: bool = False,
) -> str:
    """Lines with bands.

    Args:
        series: the lines.
        x_label: with its unit.
        y_label: with its unit.
        names: fixes the colours across several charts.
        notes: what the legend adds to a name.
        diagonal: draw the line from corner to corner, which chance would follow.
    """
    drawn = [one for one in series if len(one.x)]
    if not drawn:
        return ""
    values = [value for one in drawn for value in (*one.y, *one.low, *one.high)]
    x_axis, y_axis = _axes([x for one in drawn for x in one.x], values)
    parts = []
    if diagonal:
        ends = (x_axis.at(0.0), y_axis.at(0.0), x_axis.at(1.0), y_axis.at(1.0))
        parts.append('<path class="front" d="M{:.1f} {:.1f}L{:.1f} {:.1f}"/>'.format(*ends))
    for one in drawn:
        colour = _colour(names, one.name)
        if one.low:
            ring = [*zip(one.x, one.high, strict=True), *reversed(list(zip(one.x, one.low, strict=True)))]
            parts.append(f'<polygon class="band {colour}" points="{_points(ring, x_axis, y_axis)}"/>')
        line = _points(list(zip(one.x, one.y, strict=True)), x_axis, y_axis)
        tip = escape(f"{one.name}: {one.y[-1]:.4g} at the end")
        parts.append(f'<polyline class="line {colour}" points="{line}"><title>{tip}</title></polyline>')
    legend = _legend(names, {one.name for one in drawn}, notes)
    return _frame(parts, x_axis, y_axis, x_label, y_label) + legend


def scatter_chart(
    marks: Sequence[Mark],
    x_label: str,
    y_label: str,
    names: Sequence[str],
    front: Sequence[tuple[float, float]] = (),
) -> str:
    """Points; costs that differ widely are drawn on a logarithmic scale, others from zero.

    Args:
        marks: the points, coloured by their index in `names`.
        x_label: with its unit.
        y_label: with its unit.
        names: fixes the colours across several charts.
        front: points that no other beats in both directions, from left to right.
    """
    if not marks:
        return ""
    costs = [mark.x for mark in marks]
    wide = min(costs) > 0 and max(costs) / min(costs) > _WIDE_RATIO
    x_axis, y_axis = _axes(costs if wide else [0.0, *costs], [mark.y for mark in marks])
    if wide:
        x_axis = replace(x_axis, low=min(costs) / 1.3, high=max(costs) * 1.3, logarithmic=True)
    parts = []
    if len(front) > 1:
        steps = [front[0], *(pair for (_, y), (x, z) in pairwise(front) for pair in ((x, y), (x, z)))]
        parts.append(f'<polyline class="front" points="{_points(steps, x_axis, y_axis)}"/>')
    for mark in sorted(marks, key=lambda mark: mark.strong):
        place = f'cx="{x_axis.at(mark.x):.1f}" cy="{y_axis.at(mark.y):.1f}"'
        tip = escape(f"{mark.name} {mark.text}".strip())
        kind, radius = ("dot mean", 7) if mark.strong else ("dot", 4)
        parts.append(
            f'<circle class="{kind} {_colour(names, mark.name)}" {place} r="{radius}">'
            f"<title>{tip}</title></circle>"
        )
    return _frame(parts, x_axis, y_axis, x_label, y_label) + _legend(names, {mark.name for mark in marks})


def stacked_chart(rows: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """One bar per row, made of its parts in sequence, with their sum at its end."""
    rows = {name: parts for name, parts in rows.items() if parts}
    if not rows:
        return ""
    fullest = sorted(rows.values(), key=len, reverse=True)
    names = list(dict.fromkeys(part for parts in fullest for part in parts))
    longest = max(sum(parts.values()) for parts in rows.values()) or 1.0
    shapes = []
    for index, (row, parts) in enumerate(rows.items()):
        y, x = 8 + index * BAR_STEP, float(SIDE)
        shapes.append(f'<text x="{SIDE}" y="{y + 12}">{escape(row)}</text>')
        for name, value in parts.items():
            width = value / longest * (WIDTH - 2 * SIDE - 84)
            tip = escape(f"{row}, {name}: {value:,.3g} {unit}")
            shapes.append(
                f'<rect class="bar {_colour(names, name, _PART_COLOUR)}" x="{x:.1f}" y="{y + 18}" '
                f'width="{width:.1f}" height="20"><title>{tip}</title></rect>'
            )
            x += width
        total = f"{sum(parts.values()):,.3g} {unit}"
        shapes.append(f'<text x="{x + 8:.1f}" y="{y + 33}">{escape(total)}</text>')
    view = f'viewBox="0 0 {WIDTH} {len(rows) * BAR_STEP + 16}"'
    return f'<svg {view} role="img">{"".join(shapes)}</svg>{_legend(names, set(names), first=_PART_COLOUR)}'


def share_bars(rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """One bar per row, cut into shares that add up to 1, with names where there is room."""
    left, width, height, gap = 190.0, WIDTH - 200.0, 26.0, 10.0
    parts = []
    for number, (label, shares) in enumerate(rows):
        y = TOP + number * (height + gap)
        parts.append(f'<text class="tick-y" x="{left - 8:.1f}" y="{y + 17:.1f}">{escape(label)}</text>')
        x = left
        for order, (name, share) in enumerate(shares.items()):
            length = share * width
            opacity = 0.25 + 0.12 * (order % 5)
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{max(length - 1, 0):.1f}" '
                f'height="{height}" fill-opacity="{opacity:.2f}">'
                f"<title>{escape(f'{name}: {share:.1%}')}</title></rect>"
            )
            if length > 9 * len(name):
                parts.append(
                    f'<text class="count" x="{x + length / 2:.1f}" y="{y + 17:.1f}">{escape(name)}</text>'
                )
            x += length
    size = TOP + len(rows) * (height + gap)
    return f'<svg viewBox="0 0 {WIDTH} {size:.0f}" role="img">{"".join(parts)}</svg>'


def matrix_chart(counts: Sequence[Sequence[int]], row_label: str, column_label: str) -> str:
    """A square of counts; a cell's opacity is its share of the row."""
    size = len(counts)
    cell = (HEIGHT - TOP - BOTTOM) / size
    left = (WIDTH - size * cell) / 2
    parts = []
    for row, values in enumerate(counts):
        total = sum(values) or 1
        y = TOP + row * cell
        for column, value in enumerate(values):
            x, share = left + column * cell, value / total
            tip = escape(f"{row_label} {row}, {column_label} {column}: {value:,} ({share:.1%})")
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
                f'fill-opacity="{0.06 + 0.84 * share:.3f}"><title>{tip}</title></rect>'
            )
            if size <= _LARGEST_LABELLED_MATRIX:
                strong = " strong" if share > 0.5 else ""
                place = f'x="{x + cell / 2:.1f}" y="{y + cell / 2 + 4:.1f}"'
                parts.append(f'<text class="count{strong}" {place}>{share:.0%}</text>')
        if size <= _LARGEST_LABELLED_MATRIX:
            parts.append(f'<text class="tick-y" x="{left - 8:.1f}" y="{y + cell / 2 + 4:.1f}">{row}</text>')
            x = left + row * cell + cell / 2
            parts.append(f'<text class="tick-x" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{row}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(f'<text class="label-x" x="{WIDTH / 2}" y="{HEIGHT - 6}">{escape(column_label)}</text>')
    turned = f'transform="translate({max(left - 34, 12):.1f} {middle}) rotate(-90)"'
    parts.append(f'<text class="label-y" {turned}>{escape(row_label)}</text>')
    title = escape(f"{row_label} against {column_label}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def nice_step(rough: float) -> float:
    """The round number of the form 1, 2 or 5 times a power of ten at or above `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def _axes(xs: Sequence[float], ys: Sequence[float]) -> tuple[Axis, Axis]:
    x_low, x_high = _range(xs, margin=0.0)
    y_low, y_high = _range(ys, margin=0.06)
    return Axis(x_low, x_high, LEFT, WIDTH - RIGHT - 8), Axis(y_low, y_high, HEIGHT - BOTTOM, TOP)


def _range(values: Sequence[float], margin: float) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
    return low - margin * (high - low), high + margin * (high - low)


def _frame(parts: Sequence[str], x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> str:
    grid = [
        f'<path class="grid" d="M{LEFT} {y_axis.at(t):.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="tick-y" x="{LEFT - 8}" y="{y_axis.at(t) + 4:.1f}">{_label(t)}</text>'
        for t in y_axis.ticks()
    ]
    grid += [
        f'<text class="tick-x" x="{x_axis.at(t):.1f}" y="{HEIGHT - BOTTOM + 20}">{_label(t)}</text>'
        for t in x_axis.ticks()
    ]
    middle = (TOP + HEIGHT - BOTTOM) / 2
    labels = (
        f'<text class="label-x" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}">{escape(x_label)}</text>'
        f'<text class="label-y" transform="translate(14 {middle}) rotate(-90)">{escape(y_label)}</text>'
    )
    title = escape(f"{y_label} by {x_label}")
    inner = "".join([*grid, *parts, labels])
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">{inner}</svg>'


def _legend(
    names: Sequence[str], shown: set[str], notes: Mapping[str, str] | None = None, first: int = 0
) -> str:
    labels = {name: f"{name} {(notes or {}).get(name, '')}".strip() for name in names if name in shown}
    items = "".join(
        f'<li class="{_colour(names, name, first)}">{escape(text)}</li>' for name, text in labels.items()
    )
    return f'<ul class="legend">{items}</ul>'


def _colour(names: Sequence[str], name: str, first: int = 0) -> str:
    return f"c{(list(names).index(name) + first) % _NUM_COLOURS}"


def _points(pairs: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    finite = [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
    return " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in finite)


def _label(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
