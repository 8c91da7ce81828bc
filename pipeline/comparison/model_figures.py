"""Figures of a comparison drawn from models and stores on disk: ROC curves or confusion matrices of the
test nodes, the permuted adjacency of every head, and the coverage of the edges.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.comparison.history import Selection, Training
from pipeline.comparison.page import embed_picture, fill_template
from pipeline.comparison.report import Figure
from pipeline.comparison.svg_charts import Series, line_chart, matrix_chart, share_bars
from pipeline.orders.coverage import Coverage
from pipeline.prediction.node_tables import Floats
from pipeline.prediction.serving import Answers
from pipeline.runtime.errors import UserError
from pipeline.segments.stage import stage_name
from pipeline.storage.object_store import Remote
from pipeline.store.access import open_store
from pipeline.store.classes import class_names
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import find_checkpoint, read_origin
from pipeline.training.results import read_result

#: Points of a ROC curve; more would not be visible.
_ROC_POINTS = 200
#: Graphs with more nodes are not predicted again, as the report would take too long.
_MOST_NODES = 200_000


@dataclass(frozen=True, eq=False)
class Outcome:
    """A model's predictions for the test nodes.

    Shapes:
        probabilities: [R, C]
        labels: [R]
    """

    training: Training
    store: Path | Remote
    probabilities: Floats
    labels: NDArray[np.int64]


def figures_for(selection: Selection, store: GraphStore | None = None) -> list[Figure]:
    """Draw figures for the best training of each model on each dataset, as far as they are on disk.

    Args:
        selection: The trainings being compared.
        store: The graph they were trained on; by default the one named in their checkpoints.
    """
    tested = [
        found for training in best_trainings(selection) if (found := _answer_test_nodes(training, store))
    ]
    figures: list[Figure] = []
    for dataset in sorted({one.training.dataset for one in tested}):
        here = [one for one in tested if one.training.dataset == dataset]
        binary = [one for one in here if one.probabilities.shape[1] == 2]
        if binary:
            figures.append(_draw_roc(dataset, binary))
        figures += [draw_confusion(one) for one in here if one not in binary]
    return [*figures, *_draw_gates(best_trainings(selection)), *_draw_sequences(tested)]


def _draw_gates(trainings: Sequence[Training]) -> Iterator[Figure]:
    """What each model looked at: the share of every input block, for models that have blocks."""
    rows = []
    for training in trainings:
        result = read_result(Path(training.directory)) if training.directory else None
        if result is not None and result.gates:
            rows.append((f"{training.model}, {training.dataset}", result.gates))
    if rows:
        listed = [
            f"{label}: " + ", ".join(f"{block} {share:.0%}" for block, share in gates.items())
            for label, gates in rows
        ]
        caption = "Share of each input block in what a model reads: its gate times the size of its weights. "
        yield Figure(
            "What the models looked at", caption=caption + "; ".join(listed), drawing=share_bars(rows)
        )


def best_trainings(selection: Selection) -> list[Training]:
    """The training of each model on each dataset with the best test metric."""
    best: dict[tuple[str, str], Training] = {}
    for training in selection.trainings:
        key = (training.dataset, training.model)
        sign = 1 if training.higher_is_better else -1
        if key not in best or sign * training.test_metric > sign * best[key].test_metric:
            best[key] = training
    return [best[key] for key in sorted(best)]


def _answer_test_nodes(training: Training, store: GraphStore | None) -> Outcome | None:
    """Predict the test nodes again; None for links, or if checkpoint or store are gone or too large."""
    if not training.directory:
        return None
    try:
        checkpoint = find_checkpoint(Path(training.directory))
        origin = read_origin(checkpoint)
        found = store or open_store(origin.store)
        origin.require_store(found, checkpoint)
    except (UserError, OSError):
        return None
    if found.num_nodes > _MOST_NODES or origin.inputs.task == "link" or origin.inputs.answer != "classes":
        return None  # pairs, labels and values have no classes to draw a curve or a matrix of
    labels = found.labels()
    nodes = np.flatnonzero((found.split(training.split) == 2) & (labels >= 0))
    probabilities = Answers(checkpoint).probabilities(str(found.place))
    return Outcome(training, found.place, probabilities[nodes], labels[nodes])


def _draw_roc(dataset: str, tested: Sequence[Outcome]) -> Figure:
    """One curve per model; class 1 is the positive one."""
    from sklearn.metrics import roc_curve

    series = []
    for one in tested:
        false, true, _ = roc_curve(one.labels, one.probabilities[:, 1])
        kept = np.unique(np.linspace(0, len(false) - 1, min(_ROC_POINTS, len(false))).astype(int))
        series.append(Series(one.training.model, false[kept].tolist(), true[kept].tolist()))
    names = sorted(one.training.model for one in tested)
    areas = {one.training.model: f"({auc(one):.3f})" for one in tested}
    drawing = line_chart(
        series, "false positive rate", "true positive rate", names, notes=areas, diagonal=True
    )
    caption = f"{tested[0].labels.size:,} test nodes, the best run of each model, with its area."
    return Figure(f"ROC on {dataset}", caption=caption, drawing=drawing)


def auc(one: Outcome) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(one.labels, one.probabilities[:, 1]))


def draw_confusion(one: Outcome) -> Figure:
    """Labels against predictions."""
    size = one.probabilities.shape[1]
    cells = one.labels * size + one.probabilities.argmax(1)
    counts = np.bincount(cells, minlength=size * size).reshape(size, size)
    training = one.training
    return Figure(
        f"Confusion of {training.model} on {training.dataset}",
        caption=f"{one.labels.size:,} test nodes; shares of each true class{_list_classes(one.store)}.",
        drawing=matrix_chart(counts.tolist(), "true class", "predicted class"),
    )


def _list_classes(place: Path | Remote) -> str:
    """What the class numbers stand for, if the store knows."""
    names = class_names(open_store(place))
    if names is None:
        return ""
    return "; " + ", ".join(f"{number} is {name}" for number, name in enumerate(names))


def _draw_sequences(tested: Sequence[Outcome]) -> Iterator[Figure]:
    """Permuted adjacency and coverage of every store and split with segments."""
    # matplotlib takes a second to import.
    from pipeline.segments.adjacency_plots import write_plots

    seen: set[tuple[Path | Remote, int]] = set()
    for one in tested:
        key = (one.store, one.training.split)
        store = open_store(one.store)
        reads_segments = one.training.params.get("model.name") == "segment"
        if key in seen or not reads_segments or not store.has(stage_name(one.training.split)):
            continue
        seen.add(key)
        with tempfile.TemporaryDirectory() as directory:
            plots = write_plots(store, Path(directory), one.training.split)
            yield Figure(
                f"Coverage of the edges on {one.training.dataset}",
                caption=f"Edges whose ends are less than {plots.after.length} places apart: in a head, in "
                "the heads so far, and in the segments of their own nodes so far.",
                drawing=_coverage_table(plots.before, plots.after),
            )
            title = f"Permuted adjacency on {one.training.dataset}"
            caption = "Each panel is the adjacency in one order; the share is of edges within a segment."
            yield Figure(title, caption=caption, drawing=embed_picture(plots.image, title), wide=True)


def _coverage_table(before: Coverage, after: Coverage) -> str:
    """Shares of edges by head."""
    rows = [("input order", (before.heads[0], before.union[0], before.own[0]))]
    shares = zip(after.heads, after.union, after.own, strict=True)
    rows += [(f"head {head}", share) for head, share in enumerate(shares)]
    return fill_template("coverage.html.j2", rows=rows, chance=after.chance)
