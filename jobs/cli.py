"""The `cocn` command line."""

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from jobs.signals import INTERRUPTED, heed_termination, interruption
from pipeline.runtime.allocator import restart_with_allocator
from pipeline.runtime.errors import UserError, explain_system_error
from pipeline.runtime.passwords import hide_passwords

# One line per command: the modules of jobs/commands with a `register(app)`, in the order shown by --help.
COMMANDS = (
    "demo",
    "datasets",
    "plan",
    "preprocess",
    "train",
    "tune",
    "predict",
    "compare",
    "race",
    "reproduce",
    "submit",
    "jobs",
    "config",
    "ui",
    "track",
    "bench",
    "doctor",
)
# Commands whose process holds large tensors.
COMPUTING = frozenset({"demo", "train", "predict", "reproduce", "bench"})


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong input, 130 interrupted, 143 terminated."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and words and words[0] in COMPUTING:
        restart_with_allocator()
    debug = "--debug" in words or os.environ.get("COCN_DEBUG") == "1"
    words = [word for word in words if word != "--debug"]
    heed_termination()
    sys.exit(_run(words, debug))


def build_app() -> typer.Typer:
    """The application with every command registered."""
    app = typer.Typer(
        name="cocn",
        help="Compressed Convolution Networks on graphs of any size.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for name in COMMANDS:
        importlib.import_module(f"jobs.commands.{name}").register(app)
    return app


def _run(words: Sequence[str], debug: bool) -> int:
    try:
        code = int(build_app()(args=words, prog_name="cocn", standalone_mode=False) or 0)
        return _fail(*interruption(), debug) if code == INTERRUPTED else code
    except KeyboardInterrupt:
        return _fail(*interruption(), debug)
    except UserError as error:
        return _fail(str(error), 2, debug)
    except typer.TyperException as error:
        message = error.format_message()  # empty when a command without arguments has shown its help
        return _fail(f"{message} (see cocn --help)", error.exit_code, debug) if message else error.exit_code
    except typer.Abort:
        return _fail(*interruption(), debug)
    except Exception as error:  # noqa: BLE001 - the one place where any failure becomes one line
        if (reason := explain_system_error(error)) is not None:
            return _fail(reason, 2, debug)
        return _fail(f"{type(error).__name__}: {error} (--debug shows where)", 1, debug)


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        print(hide_passwords(traceback.format_exc()), file=sys.stderr)  # noqa: T201
    line = " ".join(hide_passwords(message).split())
    print(f"cocn: {line}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"cocn {version('cocn')}")  # noqa: T201
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
) -> None:
    """Compressed Convolution Networks on graphs of any size."""


if __name__ == "__main__":
    main()
