"""One line per benchmark and day: its numbers, at which revision, on which machine."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.runtime.provenance import device_name, source_revision

HISTORY = Path(__file__).with_name("history.jsonl")


class Measurement(BaseModel):
    """The result of a benchmark."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    date: str
    revision: str
    machine: str
    numbers: dict[str, float]
    """Every number that it reports, by name."""


def measure(benchmark: str, timeout: float) -> Measurement | None:
    """Run a benchmark in a separate process; None if it does not finish in time.

    Args:
        benchmark: The sub-command of `cocn bench`.
        timeout: Seconds that it may take.

    Raises:
        subprocess.CalledProcessError: if it fails.
    """
    command = [sys.executable, "-m", "jobs.cli", "bench", benchmark, "--json"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None
    return Measurement(
        benchmark=benchmark,
        date=datetime.now(UTC).date().isoformat(),
        revision=source_revision().commit or "",
        machine=device_name(),
        numbers=read_numbers(done.stdout.strip().splitlines()[-1]),
    )


def read_numbers(line: str) -> dict[str, float]:
    """The numbers in a benchmark's line of JSON; anything else is left out."""
    values = json.loads(line)
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def append(measurement: Measurement, path: Path = HISTORY) -> None:
    """Add a line to the history."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(measurement.model_dump_json() + "\n")


def read_history(path: Path = HISTORY) -> list[Measurement]:
    """Every recorded measurement, oldest first."""
    if not path.exists():
        return []
    return [Measurement.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
