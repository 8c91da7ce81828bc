"""Flags that say where a graph comes from, shared by the commands that read one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from pipeline.config.loading import Config
    from pipeline.config.locations import Uri
    from pipeline.config.settings import SourceOptions

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config", help="YAML file; repeatable: later files override earlier ones, flags override all."
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option(help="Raw files of published datasets, read only; by default COCN_DATA_ROOT.")
]
Side = Annotated[int | None, typer.Option(min=2, help="Side of a generated minesweeper board.")]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Nodes of a power-law graph, or of an edge list.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of generated graphs and random splits.")]
Features = Annotated[Path | None, typer.Option(help="Node features: .npy, .npz, .csv, .tsv, .parquet.")]
Labels = Annotated[Path | None, typer.Option(help="Node classes, in the same formats.")]
SourceColumn = Annotated[str | None, typer.Option(help="Source column of an edge list; default: the first.")]
TargetColumn = Annotated[str | None, typer.Option(help="Target column of an edge list; default: the second.")]
IdColumn = Annotated[str | None, typer.Option(help="Column of a node table with ids; by default 'id'.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column with classes; by default 'label'.")]
AnswerKind = Annotated[
    Literal["classes", "labels", "values"] | None,
    typer.Option("--answer", help="What label columns hold: a class, labels (0 or 1) or values to regress."),
]
SplitColumn = Annotated[str | None, typer.Option(help="Column with train, val, test; by default 'split'.")]
WeightColumn = Annotated[
    str | None, typer.Option(help="Weight column of an edge list; by default 'weight'. a,b for two.")
]
Directed = Annotated[bool | None, typer.Option("--directed", help="Keep the direction of edges.")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", help="Any key of the configuration: KEY=VALUE; repeatable.")
]
Json = Annotated[bool, typer.Option("--json", help="End with one line of JSON.")]


def place_of(flag: str, text: str) -> "Path | Uri":
    """The path or URI that a flag names."""
    from pipeline.config.locations import parse_place
    from pipeline.runtime.errors import UserError
    from pipeline.runtime.passwords import hide_passwords

    try:
        return parse_place(text)
    except ValueError as error:
        reason = str(error).removeprefix("Input should be ")
        raise UserError(f"Expected '{flag}' to be {reason} (got '{hide_passwords(text)}')") from error


def resolve_options(config: "Config", source: str | None, **flags: object) -> "SourceOptions":
    """The options of a source: the configuration's, overridden by any flags given.

    Raises:
        UserError: If no source is named, or a flag has an impossible value.
    """
    from pydantic import ValidationError

    from pipeline.config.loading import FLAGS, first_problem
    from pipeline.config.settings import SourceOptions
    from pipeline.ingest.stage import options_from
    from pipeline.runtime.errors import UserError

    given = {name: value for name, value in flags.items() if value is not None}
    if source is not None:
        given["source"] = source
    elif "source" not in config.data.model_fields_set:
        raise UserError(
            "Expected a graph (got none): name a dataset, as shown by `cocn datasets list`, or a file; or "
            "set 'data.source' in a file for --config"
        )
    try:
        return SourceOptions.model_validate({**options_from(config.data).model_dump(), **given})
    except ValidationError as error:
        raise UserError(first_problem(error, {}, FLAGS)) from error
