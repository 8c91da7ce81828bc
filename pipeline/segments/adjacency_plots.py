"""Plots of the sequences: the adjacency before and after ordering, and the coverage of the edges."""

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from pipeline.orders.coverage import Coverage, adjacency_density, measure_coverage
from pipeline.orders.sequences import from_order
from pipeline.segments.stage import SegmentSummary, open_sequences, stage_name
from pipeline.storage.files import atomic_file
from pipeline.store.graph_store import GraphStore

# Cells stay larger than a pixel, so that none is lost.
MAX_BINS = 128
_COLUMNS = 3
_PANEL_INCHES = 3.2
# A single edge must stand out from an empty, white cell.
_COLOURS = LinearSegmentedColormap.from_list("edges", ["#9ecae1", "#2171b5", "#08306b"])


@dataclass(frozen=True)
class Plots:
    """What `write_plots` wrote and measured."""

    image: Path
    table: Path
    before: Coverage
    after: Coverage


def write_plots(store: GraphStore, out_dir: Path, split: int = 0) -> Plots:
    """Draw the permuted adjacency of every head next to the input's, and tabulate the coverage.

    Args:
        store: A store with segments.
        out_dir: Directory for `adjacency.png` and `coverage.csv`.
        split: Split whose segments are used; the sequences are the same for every split.
    """
    csr = store.csr()
    after = open_sequences(store, split)
    before = from_order(np.arange(store.num_nodes)[None])
    length = store.summary(stage_name(split), SegmentSummary).length
    coverages = [measure_coverage(sequences, csr, length) for sequences in (before, after)]
    bins = min(MAX_BINS, store.num_nodes)
    densities = [adjacency_density(rank, csr, bins) for rank in (*before.rank, *after.rank)]
    titles = [f"input order · {coverages[0].heads[0]:.1%}"]
    titles += [f"head {head} · {share:.1%}" for head, share in enumerate(coverages[1].heads)]
    headline = (
        f"{store.manifest.name}: {coverages[1].union[-1]:.1%} of the edges within {length} places in at "
        f"least one of {after.num_heads} heads (random orders: {coverages[1].chance:.1%})"
    )
    figure = draw_densities(densities, titles, headline, store.num_nodes)
    image, table = out_dir / "adjacency.png", out_dir / "coverage.csv"
    write_image(figure, image)
    _write_table(table, *coverages)
    return Plots(image=image, table=table, before=coverages[0], after=coverages[1])


def draw_densities(
    densities: list[NDArray[np.int64]], titles: list[str], headline: str, num_nodes: int
) -> Figure:
    """One panel per matrix, all on the same logarithmic scale, so that panels can be compared."""
    rows = -(-len(densities) // _COLUMNS)
    figure = Figure(figsize=(_PANEL_INCHES * _COLUMNS, _PANEL_INCHES * rows + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).flatten()
    scale = LogNorm(vmin=1, vmax=max(2, *(int(density.max()) for density in densities)))
    for panel, density, title in zip(panels, densities, titles, strict=False):
        shown = _draw_panel(panel, density, title, scale, num_nodes)
    for panel in panels[len(densities) :]:
        panel.axis("off")
    bar = figure.colorbar(shown, ax=list(panels), shrink=0.4, location="bottom", pad=0.02)
    bar.set_label("adjacency entries in a cell", fontsize=9)
    figure.suptitle(headline, fontsize=10)
    return figure


def _draw_panel(
    panel: Axes, density: NDArray[np.int64], title: str, scale: LogNorm, num_nodes: int
) -> AxesImage:
    masked = np.ma.masked_equal(density, 0)
    extent = (0.0, float(num_nodes), float(num_nodes), 0.0)
    shown = panel.imshow(masked, cmap=_COLOURS, norm=scale, extent=extent, interpolation="nearest")
    panel.set_title(title, fontsize=9)
    panel.set_xticks([0, num_nodes])
    panel.set_yticks([0, num_nodes])
    panel.tick_params(labelsize=7, length=2)
    return shown


def write_image(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, atomically."""
    content = io.BytesIO()
    # Without metadata the same plot always has the same bytes.
    figure.savefig(content, format="png", dpi=120, metadata={"Software": None})
    with atomic_file(path) as file:
        file.write(content.getvalue())


def _write_table(path: Path, before: Coverage, after: Coverage) -> None:
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(["order", "near", "near_in_heads_so_far", "in_own_segment_so_far"])
    for name, coverage in (("input", before), ("head", after)):
        for head, shares in enumerate(zip(coverage.heads, coverage.union, coverage.own, strict=True)):
            label = name if name == "input" else f"{name} {head}"
            writer.writerow([label, *(f"{share:.6f}" for share in shares)])
    writer.writerow(["random", "", f"{after.chance:.6f}", ""])
    with atomic_file(path) as file:
        file.write(content.getvalue().encode())
