"""What the entry points of jobs share: one argument, one line per mistake, a result as JSON at the end."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from jobs.output import to_json
from jobs.signals import heed_termination, interruption
from pipeline.config.loading import Config, load_config
from pipeline.runtime.errors import UserError, explain_system_error

if TYPE_CHECKING:
    from pipeline.tracking.runs import Run

IN_ENVIRONMENT = "env:"


def run_job(name: str, arguments: Sequence[str], work: Callable[[Config], object]) -> int:
    """Run the work of a job on a configuration file; returns the exit code.

    Args:
        name: The module, such as `jobs.train`.
        arguments: The command-line arguments: files, of which later ones override earlier ones, or
            `env:NAME` for a variable that holds the text of a configuration.
        work: Takes the configuration and returns the result, which becomes the last line of output.
    """
    if not arguments:
        say(f"usage: python -m {name} CONFIG [CONFIG …]")
        return 2
    heed_termination()
    try:
        result = work(read_config(arguments))
    except UserError as error:
        say(f"{name}: {error}")
        return 2
    except (OSError, MemoryError) as error:
        if (reason := explain_system_error(error)) is None:
            raise
        say(f"{name}: {reason}")
        return 2
    except KeyboardInterrupt:
        reason, code = interruption()
        say(f"{name}: {reason}; the same configuration continues from here")
        return code
    print(to_json(result), flush=True)  # noqa: T201
    return 0


def read_config(places: Sequence[str]) -> Config:
    """The configuration from files, or from the environment, where submitted jobs find theirs."""
    if len(places) > 1 or not places[0].startswith(IN_ENVIRONMENT):
        return load_config([Path(place) for place in places])
    name = places[0].removeprefix(IN_ENVIRONMENT)
    try:
        return Config.model_validate_json(os.environ[name])
    except KeyError as error:
        raise UserError(f"Expected the environment to hold '{name}' (got no such variable)") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise UserError(
            f"Expected a configuration that cocn {version('cocn')}, which runs here, knows "
            f"(got '{key}': {problem['msg']})"
        ) from error


def say(line: str) -> None:
    """Print a message for people; standard output is for the result."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def announce(run: "Run") -> None:
    """Say where to watch a run: its page on the server, or how to open one from a file."""
    from pipeline.runtime.passwords import without_password
    from pipeline.tracking.mlflow_store import TrackingStore

    reference = run.reference
    uri = without_password(reference.uri)
    if run.run_id is None:
        say(f"MLflow run: waiting for {uri}; `cocn track sync --output …` sends it later")
        return
    store = TrackingStore(reference.uri)
    if store.web_address is None:
        say(f"MLflow run: {run.run_id} in {uri} (cocn ui shows it)")
        return
    experiment = store.read_run(run.run_id).experiment_id
    page = f"{store.web_address.rstrip('/')}/#/experiments/{experiment}/runs/{run.run_id}"
    say(f"MLflow run: {page}")
