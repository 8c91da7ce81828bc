"""Figures of the studies, as PNG files."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pipeline.reproduce.information_loss import SHAPES, TAUS, Recovery
from pipeline.reproduce.orders import Order
from pipeline.reproduce.records import Measurement
from pipeline.reproduce.trained import CellResult
from pipeline.segments.adjacency_plots import draw_densities, write_image

_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")


def draw_cells(results: Sequence[CellResult], title: str, path: Path) -> None:
    """Our results and the paper's, one row per cell."""
    shown = [result for result in results if result.mean is not None]
    figure, panel = _figure(7, 1.2 + 0.28 * len(shown))
    names = [" ".join(filter(None, (r.dataset, r.model, r.variant))) for r in shown]
    rows = range(len(shown))
    panel.errorbar(
        [cast(float, r.mean) for r in shown], rows, xerr=[r.std or 0 for r in shown], fmt="o", label="here"
    )
    printed = [(r.paper_mean, row) for r, row in zip(shown, rows, strict=True) if r.paper_mean is not None]
    if printed:
        panel.plot(*zip(*printed, strict=True), "|", markersize=12, color=_COLOURS[1], label="paper")
    panel.set_yticks(list(rows), names, fontsize=7)
    panel.invert_yaxis()
    panel.set_xlabel("%")
    panel.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    write_image(figure, path)


def draw_orders(orders: Sequence[Order], title: str, path: Path) -> None:
    """The permuted adjacency of each order, one image per dataset."""
    datasets = list(dict.fromkeys(order.dataset for order in orders))
    for name in datasets:
        same = [order for order in orders if order.dataset == name]
        densities, titles = [order.density for order in same], [order.title for order in same]
        figure = draw_densities(densities, titles, title, same[0].num_nodes)
        write_image(figure, path.with_stem(f"{path.stem}-{name}") if len(datasets) > 1 else path)


def draw_recoveries(found: Sequence[tuple[Measurement, Recovery]], path: Path) -> None:
    """The original graphs and their recoveries, by τ."""
    shapes = [shape for shape in SHAPES if any(m.case["graph"] == shape for m, _ in found)]
    figure = Figure(figsize=(2.1 * (1 + len(TAUS)), 2.2 * len(shapes)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(shapes), 1 + len(TAUS), squeeze=False)
    for row, shape in zip(panels, shapes, strict=True):
        same = [(m, r) for m, r in found if m.case["graph"] == shape]
        drawn = [("original", same[0][1].coordinates, same[0][1])]
        drawn += [(f"τ = {m.case['tau']} · {r.distortion:.3f}", r.recovered, r) for m, r in same]
        for panel, (title, points, recovery) in zip(row, drawn, strict=True):
            for start, end in recovery.edges.T:
                panel.plot(points[[start, end], 0], points[[start, end], 1], color="#9ecae1", linewidth=0.6)
            panel.plot(points[:, 0], points[:, 1], ".", color=_COLOURS[0], markersize=3)
            panel.set_title(title, fontsize=8)
            panel.set_aspect("equal")
            panel.axis("off")
    write_image(figure, path)


def draw_complexity(found: Sequence[Measurement], path: Path) -> None:
    """Time and memory against the number of nodes, on linear and on logarithmic axes."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2)
    models = list(dict.fromkeys(str(m.case["model"]) for m in found))
    quantities = (("epoch_seconds", "seconds per epoch"), ("memory_mb", "memory, MiB"))
    for row, scale in zip(panels, ("linear", "log"), strict=True):
        for panel, (key, label) in zip(row, quantities, strict=True):
            for model, colour in zip(models, _COLOURS, strict=False):
                points = sorted(
                    (cast(int, m.case["nodes"]), m.values[key]) for m in found if m.case["model"] == model
                )
                panel.plot(*zip(*points, strict=True), ".-", color=colour, label=model)
            panel.set_xscale(scale)
            panel.set_yscale(scale)
            panel.set_xlabel("nodes")
            panel.set_ylabel(label)
            panel.legend(fontsize=8)
    write_image(figure, path)


def draw_lines(results: Sequence[CellResult], x_label: str, title: str, path: Path) -> None:
    """One line per dataset against the number at the end of its variants, such as `tau=0.1`."""
    figure, panel = _figure(6, 4)
    names = list(dict.fromkeys(r.dataset for r in results))
    for name, colour in zip(names, _COLOURS, strict=False):
        for ours, style in ((True, "o-"), (False, "x--")):
            points = [
                (float(r.variant.rpartition("=")[2]), value)
                for r in results
                if r.dataset == name and (value := r.mean if ours else r.paper_mean) is not None
            ]
            if points:
                label = name if ours else f"{name}, paper"
                panel.plot(*zip(*sorted(points), strict=True), style, color=colour, label=label)
    panel.set_xscale("log")
    panel.set_xlabel(x_label)
    panel.set_ylabel("%")
    panel.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    write_image(figure, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()
