"""The tables of the paper as printed, read from `results.yaml`, and the misprints in `misprints.yaml`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, cast

import yaml

_NUMBER = re.compile(r"[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?")
_PERCENT = ("accuracy", "roc_auc", "mrr", "hits@1", "hits@3", "improvement")
_TITLES = {
    "vanilla": "CoCN vanilla",
    "expanded": "CoCN expanded",
    "sparse": "Sp. CoCN",
    "segment": "Seg. CoCN",
}


@dataclass(frozen=True)
class Result:
    """One cell of a table.

    Attributes:
        dataset: its name in the registry; `all` for a number over the whole table.
        model: its name in `cocn train`, or a separate name.
        title: the model's name as printed.
        metric: accuracy, roc_auc, mrr, hits@1, hits@3, undistinguished_pairs, rank, improvement, …
        variant: what an ablation varies, such as `tau=0.1` or `residual`; empty elsewhere.
        printed: the cell as printed.
        mean: its number, in percent if the unit is %; None for a dash, OOM or a formula.
        std: the number after ±, if any.
    """

    table: str
    dataset: str
    model: str
    title: str
    metric: str
    variant: str
    printed: str
    mean: float | None
    std: float | None

    @property
    def unit(self) -> str:
        """% for scores; nothing for counts, ranks and settings."""
        return "%" if self.metric in _PERCENT else ""


@dataclass(frozen=True)
class Table:
    """A table or a figure of the paper.

    Attributes:
        name: what `cocn reproduce` calls it.
        label: its LaTeX label.
        metric: the metric of most of its cells; empty if each column has its own.
        entries: its cells, row by row; empty for a figure.
        datasets: the datasets it shows, in its order.
        statistics: what it prints about a dataset, such as {"texas": {"nodes": "183"}}.
        settings: the settings a figure was made with.
        finding: what a figure shows, in one sentence.
    """

    name: str
    label: str
    title: str
    metric: str
    entries: tuple[Result, ...]
    datasets: tuple[str, ...]
    statistics: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, tuple[Any, ...]]
    finding: str

    @property
    def models(self) -> tuple[str, ...]:
        """Names of its models, in its order."""
        return tuple(dict.fromkeys(entry.model for entry in self.entries))


@dataclass(frozen=True)
class Misprint:
    """Something printed that is wrong, or counted differently from its neighbours.

    Attributes:
        what: the statistic or the result, such as `edges`.
        actual: what we believe to be right.
        note: the reason, in one sentence.
    """

    table: str
    dataset: str
    what: str
    printed: str
    actual: str
    note: str


@cache
def load_tables() -> dict[str, Table]:
    """Every table and figure of the paper by name."""
    content: dict[str, dict[str, Any]] = _read("results.yaml")
    return {name: _table(name, fields) for name, fields in content.items()}


@cache
def load_misprints() -> tuple[Misprint, ...]:
    """Every known misprint."""
    return tuple(Misprint(**fields) for fields in _read("misprints.yaml"))


def paper_result(
    table: str, dataset: str, model: str, *, variant: str = "", metric: str | None = None
) -> Result | None:
    """What the paper prints, or None if it has no such cell.

    Args:
        table: name of the table.
        dataset: name of the dataset.
        model: name of the model.
        variant: what an ablation varies.
        metric: by default the first that the table has.
    """
    for entry in load_tables()[table].entries:
        same = (entry.dataset, entry.model, entry.variant) == (dataset, model, variant)
        if same and metric in (None, entry.metric):
            return entry
    return None


def _read(name: str) -> Any:
    text = resources.files("pipeline.paper").joinpath(name).read_text(encoding="utf-8")
    return yaml.safe_load(text)


def _table(name: str, fields: Mapping[str, Any]) -> Table:
    columns = cast("list[dict[str, str]]", fields.get("columns", []))
    shared = {key: fields[key] for key in ("dataset", "model", "metric") if key in fields}
    entries = tuple(
        _result(name, cell, {**shared, **row, **column})
        for row in fields.get("rows", [])
        for column, cell in zip(columns, row["cells"].split(), strict=True)
    )
    named = [entry.dataset for entry in entries if entry.dataset != "all"]
    return Table(
        name=name,
        label=fields["label"],
        title=fields["title"],
        metric=fields.get("metric", ""),
        entries=entries,
        datasets=tuple(fields.get("datasets", dict.fromkeys(named))),
        statistics=_statistics(
            fields.get("statistics", {}), [column.get("dataset", "") for column in columns]
        ),
        settings={key: tuple(values) for key, values in fields.get("settings", {}).items()},
        finding=fields.get("finding", ""),
    )


def _result(table: str, cell: str, fields: Mapping[str, str]) -> Result:
    mean, _, std = cell.partition("±")
    model = fields["model"]
    return Result(
        table=table,
        dataset=fields["dataset"],
        model=model,
        title=fields.get("title", _TITLES.get(model, model)),
        metric=fields["metric"],
        variant=fields.get("variant", ""),
        printed=cell,
        mean=_number(mean),
        std=_number(std),
    )


def _number(text: str) -> float | None:
    return float(text.replace(",", "")) if _NUMBER.fullmatch(text) else None


def _statistics(printed: Mapping[str, str], datasets: list[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for field, cells in printed.items():
        # The last columns of a table may belong to no dataset, such as the mean rank.
        for dataset, cell in zip(datasets, str(cells).split(), strict=False):
            found.setdefault(dataset, {})[field] = cell
    return found
