"""What each trained table and figure of the paper requires: a model, a dataset and what is varied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from pipeline.models.networks import FAMILY
from pipeline.paper.registry import BENCHMARKS_BY_NAME
from pipeline.paper.tables import Result, Table, load_tables
from pipeline.runtime.errors import UserError

#: Tables and figures that come from trainings; the other studies have a module each.
TRAINED = (
    "node",
    "node-hetero",
    "node-homo",
    "filter",
    "graph",
    "graph-brain",
    "link",
    "tau",
    "modules",
    "features",
    "permutations",
    "receptive-field",
    "opponents",
)
#: Tuned opponents next to their published results: not a table of the paper.
_OPPONENTS = "opponents"
_PLAIN: Mapping[str, object] = {"model.residual": False, "model.inception_kernels": []}
_INCEPTION = [3, 5]
_VARIANTS: Mapping[str, Mapping[str, object]] = {
    "plain": _PLAIN,
    "inception": {"model.residual": False, "model.inception_kernels": _INCEPTION},
    "residual": {"model.residual": True, "model.inception_kernels": []},
    "full": {"model.residual": True, "model.inception_kernels": _INCEPTION},
    "structure": {"model.node_features": False, "model.propagated_features": 0},
    "node": {"model.structure_features": False},
    "both": {},
    "epoch of another fold": {"data.protocol": "holdout"},
    "own features": {"model.propagated_features": 0},
    "learned orders": {"model.positions": "explicit"},
    "profile orders": {"model.positions": "fixed", "positions.order": "profile"},
    "covering orders": {"model.positions": "fixed"},
    "windows of five": {"model.kernel_size": 5, "model.pool_layers": 0, "segments.length": 5},
    "windows of one": {"model.kernel_size": 1, "model.structure_features": False},
}
#: Variants of every cell of a table that the paper does not have.
_OURS: Mapping[str, Sequence[str]] = {
    "node": ("own features", "covering orders", "windows of one"),
    "node-hetero": ("own features", "learned orders", "profile orders", "windows of five"),
    "node-homo": ("own features", "learned orders", "profile orders", "windows of five"),
    "graph": ("epoch of another fold",),
}
#: The name for the variant of a cell without one.
_PRESET = "preset"
_HEADS = (1, 2, 4, 8)
_DEPTHS = (1, 2, 3, 4)
_LARGE = ("node-hetero", "node-homo")


@dataclass(frozen=True)
class Cell:
    """A model on a dataset.

    Attributes:
        variant: what distinguishes it from the preset, in words; empty for the preset.
        overrides: the same by dotted keys of the configuration.
        paper: the paper's number; None for rows that are only ours.
    """

    dataset: str
    model: str
    variant: str = ""
    overrides: Mapping[str, object] = field(default_factory=dict)
    paper: Result | None = None


def cells_of(table: str) -> list[Cell]:
    """Everything that a table or figure shows of the family, followed by our own rows."""
    if table == _OPPONENTS:
        return _opponent_cells()
    printed = load_tables()[table]
    if table == "permutations":
        return [
            Cell(name, _member(name), f"heads={count}", {"model.heads": count})
            for name in printed.datasets
            for count in _HEADS
        ]
    if table == "receptive-field":
        return list(_fields(printed))
    cells = [
        Cell(entry.dataset, entry.model, entry.variant, _overrides(entry.variant), entry)
        for entry in printed.entries
        if entry.model in FAMILY and entry.metric == _metric(entry.dataset) and entry.dataset != "all"
    ]
    return cells + _extensions(table, cells)


def title_of(table: str) -> str:
    """The heading of a table."""
    return "Tuned opponents next to published results" if table == _OPPONENTS else load_tables()[table].title


def _opponent_cells() -> list[Cell]:
    """Opponents with their published number, or the one that the paper prints, if any."""
    text = resources.files("pipeline.reproduce").joinpath("published.yaml").read_text(encoding="utf-8")
    return [
        Cell(one["dataset"], one["model"], paper=_published(one) or _printed(one["dataset"], one["model"]))
        for one in yaml.safe_load(text)
    ]


def _published(one: Mapping[str, Any]) -> Result | None:
    if "mean" not in one:
        return None
    return Result(
        table=_OPPONENTS,
        dataset=one["dataset"],
        model=one["model"],
        title=f"{one['model']} ({one['source']} et al.)",
        metric=_metric(one["dataset"]),
        variant="",
        printed=f"{one['mean']}±{one['std']}",
        mean=one["mean"],
        std=one["std"],
    )


def _printed(dataset: str, model: str) -> Result | None:
    entries = load_tables()[BENCHMARKS_BY_NAME[dataset].table].entries
    metric = _metric(dataset)
    return next((e for e in entries if (e.dataset, e.model, e.metric) == (dataset, model, metric)), None)


def select(
    cells: Sequence[Cell], datasets: Sequence[str], models: Sequence[str], variants: Sequence[str] = ()
) -> list[Cell]:
    """The cells of these datasets, models and variants; all of them if none are named.

    Raises:
        UserError: for a name that the table does not have.
    """
    for kind, named, known in (
        ("dataset", datasets, [cell.dataset for cell in cells]),
        ("model", models, [cell.model for cell in cells]),
        ("variant", variants, [cell.variant or _PRESET for cell in cells]),
    ):
        for name in named:
            if name not in known:
                raise UserError(
                    f"Expected a {kind} of this table, {', '.join(dict.fromkeys(known))} (got '{name}')"
                )
    return [
        cell
        for cell in cells
        if (not datasets or cell.dataset in datasets)
        and (not models or cell.model in models)
        and (not variants or (cell.variant or _PRESET) in variants)
    ]


def _extensions(table: str, cells: Sequence[Cell]) -> list[Cell]:
    """Rows that the paper lacks: expanded in linear time on large graphs, and variants that show what
    matters."""
    large = dict.fromkeys(cell.dataset for cell in cells) if table in _LARGE else ()
    return [Cell(name, "expanded") for name in large] + [
        Cell(cell.dataset, cell.model, variant, _VARIANTS[variant])
        for cell in cells
        for variant in _OURS.get(table, ())
    ]


def _fields(printed: Table) -> list[Cell]:
    """Kernel sizes against depth: of unit layers at one pooling layer, and the other way round."""
    cells = []
    for name in printed.datasets:
        for size in printed.settings["kernel_size"]:
            for depth in _DEPTHS:
                for letter, units, pools in (("L1", depth, 1), ("L2", 1, depth)):
                    overrides = {
                        "model.kernel_size": size,
                        "model.inception_kernels": [],
                        "model.unit_layers": units,
                        "model.pool_layers": pools,
                    }
                    cells.append(Cell(name, _member(name), f"k={size} {letter}={depth}", overrides))
    return cells


def _member(dataset: str) -> str:
    """The member of the family that the paper's figures show on a dataset, as far as one can tell."""
    return "sparse" if BENCHMARKS_BY_NAME[dataset].table in _LARGE else "expanded"


def _metric(dataset: str) -> str:
    return BENCHMARKS_BY_NAME[dataset].metric if dataset in BENCHMARKS_BY_NAME else ""


def _overrides(variant: str) -> Mapping[str, object]:
    if variant.startswith("tau="):
        return {"model.tau": float(variant.removeprefix("tau="))}
    return _VARIANTS[variant] if variant else {}
