"""What the entry points of jobs share: one argument, one line for a mistake, a result as JSON at the end."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.output import to_json
from pipeline.config import load_config
from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.runs import Run


def run_job(name: str, arguments: Sequence[str], work: "Callable[[Config], object]") -> int:
    """Run the work of a job on a configuration file; returns the exit code: 0 done, 2 wrong input.

    Args:
        name: The module, such as `jobs.train`.
        arguments: The words after it.
        work: Takes the configuration and returns the result, which becomes the last line of output.
    """
    if len(arguments) != 1:
        say(f"usage: python -m {name} CONFIG")
        return 2
    try:
        result = work(load_config(Path(arguments[0])))
    except UserError as error:
        say(f"{name}: {error}")
        return 2
    print(to_json(result), flush=True)  # noqa: T201
    return 0


def say(line: str) -> None:
    """Tell people something; standard output is for the result."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def announce(run: "Run") -> None:
    """Say where a run can be watched: its page on the server, or how to open one on a file."""
    from pipeline.tracking import TrackingStore, without_password

    reference = run.reference
    uri = without_password(reference.uri)
    if run.run_id is None:
        say(f"MLflow run: waits for {uri}; `cocn track sync --output …` sends it later")
        return
    store = TrackingStore(reference.uri)
    if store.web_address is None:
        say(f"MLflow run: {run.run_id} in {uri} (cocn ui shows it)")
        return
    experiment = store.read_run(run.run_id).experiment_id
    page = f"{store.web_address.rstrip('/')}/#/experiments/{experiment}/runs/{run.run_id}"
    say(f"MLflow run: {page}")
