"""`cocn reproduce`: the paper's results, next to ours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import DataRoot
from jobs.output import emit, say

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.reproduce.command import Measured
    from pipeline.reproduce.isomorphism import Outcome
    from pipeline.reproduce.trained import CellResult

TABLES = (
    "node, node-hetero, node-homo, filter, graph, graph-brain, isomorphism, link, tau, modules, features, "
    "permutations, receptive-field, information-loss, order-explicit, order-implicit, complexity; opponents; "
    "or results, which writes RESULTS.md from all records"
)


def register(app: typer.Typer) -> None:
    app.command("reproduce")(reproduce)


def reproduce(
    table: Annotated[str, typer.Argument(metavar="TABLE", help=TABLES)],
    datasets: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    models: Annotated[str | None, typer.Option(help="Only these, separated by commas.")] = None,
    variants: Annotated[
        str | None, typer.Option(help="Only these, separated by commas; 'preset' for cells without one.")
    ] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="At most N splits or folds of each.")] = None,
    time_budget: Annotated[
        str | None, typer.Option(help="Time for everything: 90s, 30m, 2h; divided evenly.")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option("--settings", help="paper, or quick: smaller settings; by default quick without a GPU."),
    ] = None,
    workers: Annotated[str | None, typer.Option(help="Worker processes, as for cocn train.")] = None,
    cpus_per_worker: Annotated[int | None, typer.Option(min=1, help="Cores per worker.")] = None,
    data_root: DataRoot = None,
    output: Annotated[Path, typer.Option(help="Directory of stores, runs and figures.")] = Path("runs"),
    records: Annotated[
        Path | None, typer.Option(help="Directory of records; by default the one in the checkout.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also run what is already recorded.")] = False,
    largest: Annotated[int | None, typer.Option(help="Nodes of the largest graph for 'complexity'.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the networks.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Reproduce a table or figure of the paper; results already recorded are shown, not run again.

    Example: [bold]cocn reproduce node-hetero --data-root datasets --splits 1 --time-budget 10m[/bold]
    """
    from pipeline.reproduce.command import Choices, run

    choices = Choices(
        table=table,
        datasets=_names(datasets),
        models=_names(models),
        variants=_names(variants),
        splits=splits,
        time_budget=time_budget,
        scale=scale,
        workers=workers,
        cpus_per_worker=cpus_per_worker,
        data_root=data_root,
        output=output,
        records=records,
        again=again,
        largest=largest,
        seed=seed,
    )
    found = run(choices, say)
    if not as_json:
        for path in found.figures:
            say(f"figure: {path}")
    emit(found.content, as_json, None if as_json else _view(found.content))


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def _view(content: object) -> "Table | None":
    from pipeline.reproduce.command import Measured, Trained
    from pipeline.reproduce.isomorphism import Outcome

    if isinstance(content, Trained):
        return _cells(content.cells)
    if isinstance(content, Measured):
        return _measurements(content)
    if isinstance(content, dict) and all(isinstance(one, Outcome) for one in content.values()):
        return _outcomes(content)
    return None


def _cells(cells: "tuple[CellResult, ...]") -> "Table":
    from rich.table import Table

    from pipeline.reproduce.page import score

    table = Table("dataset", "model", "variant", "metric", "here, %", "paper, %", "splits", "cut short")
    for cell in cells:
        ours, paper = score(cell.mean, cell.std), score(cell.paper_mean, cell.paper_std)
        cut = str(cell.cut_short or "")
        table.add_row(cell.dataset, cell.model, cell.variant, cell.metric, ours, paper, str(cell.splits), cut)
    return table


def _measurements(content: "Measured") -> "Table":
    from rich.table import Table

    first = content.cases[0]
    table = Table(*(str(key).replace("_", " ") for key in (*first.case, *first.values)))
    for one in content.cases:
        values = (f"{value:,.4g}" for value in one.values.values())
        table.add_row(*(str(value) for value in one.case.values()), *values)
    return table


def _outcomes(outcomes: "dict[str, Outcome]") -> "Table":
    from rich.table import Table

    table = Table("dataset", "pairs", "not distinguished", "copies", "wrongly distinguished", "parameters")
    for name, one in outcomes.items():
        numbers = (one.num_pairs, one.undistinguished, one.num_graphs, one.wrongly_distinguished)
        table.add_row(name, *(f"{number:,}" for number in (*numbers, one.num_parameters)))
    return table
