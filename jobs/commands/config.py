"""`cocn config`: the resolved configuration and its schema."""

from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import Assignments, ConfigFiles, Json
from jobs.output import emit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from pipeline.config.explanation import Setting


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Show the configuration, and its schema for editors.")
    group.command("show")(show)
    group.command("schema")(schema)
    group.callback()(_group)
    app.add_typer(group, name="config")


def show(
    config: ConfigFiles = None,
    assignments: Assignments = None,
    preset: Annotated[
        bool, typer.Option("--preset", help="Include the paper's settings for data.source and model.name.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Include the smaller preset.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Only values that are not the default.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting with its value and where it came from: default, preset, file or flag.

    Example: [bold]cocn config show --config infra/model.yaml --set train.epochs=3 --changed[/bold]
    """
    from pipeline.config.explanation import DEFAULT, explain_config
    from pipeline.config.loading import load_config, parse_assignments
    from pipeline.presets import load_preset

    files, overrides = config or [], parse_assignments(assignments or ())
    values = None
    if preset or quick:
        resolved = load_config(files, overrides)
        values = load_preset(resolved.data.source, resolved.model.name, quick=quick)
    settings = explain_config(files, overrides, preset=values)
    if changed:
        settings = tuple(setting for setting in settings if setting.origin != DEFAULT)
    emit(settings, as_json, None if as_json else _table(settings))


def schema() -> None:
    """Print the JSON schema of configuration files, for completion and validation in editors.

    Save it to a file and refer to that file in the first line of a configuration:
    [bold]# yaml-language-server: $schema=cocn.schema.json[/bold]

    Example: [bold]cocn config schema > cocn.schema.json[/bold]
    """
    import json

    from pipeline.config.explanation import config_schema

    print(json.dumps(config_schema(), indent=1, ensure_ascii=False))  # noqa: T201


def _table(settings: "Sequence[Setting]") -> "Table":
    from rich.table import Table

    table = Table("setting", "value", "from", box=None, padding=(0, 2, 0, 0))
    for setting in settings:
        table.add_row(setting.key, str(setting.value), setting.origin)
    return table


def _group() -> None:
    """Show the configuration, and its schema for editors."""
