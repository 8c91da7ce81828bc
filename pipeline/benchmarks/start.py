"""How long `cocn train` takes until its first step, as a multiple of importing torch."""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.benchmarks.segments import make_store
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import progress

_POLL_SECONDS = 0.01
#: A first step that takes longer than this counts as a failure.
_PATIENCE_SECONDS = 120.0
#: What a training writes with its first step.
_SIGN_OF_LIFE = "trainings/*/now.json"


@dataclass(frozen=True)
class StartCost:
    """Seconds from the command to the end of the first step, alternating with importing torch."""

    nodes: int
    help_seconds: float
    """`cocn --help`."""
    torch_seconds: float
    """Importing torch, in a separate process."""
    first_step_seconds: float
    """`cocn train segment` on a prepared store."""
    ratio: float
    """Median over rounds of the first step over importing torch just before."""


def run(nodes: int = 421_961, rounds: int = 3) -> StartCost:
    """Measure.

    Args:
        nodes: Size of the graph in the store.
        rounds: Rounds, alternating; files are read once before the first counts.
    """
    times: list[tuple[float, float, float]] = []
    with tempfile.TemporaryDirectory() as directory, progress("start", rounds + 1, "rounds") as bar:
        store = make_store(Path(directory) / "store", nodes, all_train=False)
        for _ in range(rounds + 1):
            help_seconds = _time_command([sys.executable, "-m", "jobs.cli", "--help"])
            torch_seconds = _time_command([sys.executable, "-c", "import torch"])
            times.append((help_seconds, torch_seconds, _time_first_step(store.path, Path(directory) / "out")))
            bar.advance()
    counted = times[1:]
    medians = [statistics.median(column) for column in zip(*counted, strict=True)]
    return StartCost(
        nodes=nodes,
        help_seconds=medians[0],
        torch_seconds=medians[1],
        first_step_seconds=medians[2],
        ratio=statistics.median(step / torch for _, torch, step in counted),
    )


def _time_command(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _time_first_step(store: Path, output: Path) -> float:
    """Seconds until a training reports its first step; then it is ended."""
    # The tracking database is kept: it is created once, not with every training.
    shutil.rmtree(output / "trainings", ignore_errors=True)
    settings = {"model.heads": 8, "segments.length": 8, "positions.order": "profile"}
    command = [sys.executable, "-m", "jobs.cli", "train", "segment", "--store", str(store)]
    command += ["--output", str(output)]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    output.mkdir(parents=True, exist_ok=True)
    log = output / "start.log"
    start = time.perf_counter()
    with log.open("w") as lines, subprocess.Popen(command, stdout=lines, stderr=lines) as process:
        try:
            while time.perf_counter() - start < _PATIENCE_SECONDS and process.poll() is None:
                if any(output.glob(_SIGN_OF_LIFE)):
                    return time.perf_counter() - start
                time.sleep(_POLL_SECONDS)
        finally:
            process.terminate()
    last = log.read_text().strip().splitlines()[-1:] or ["nothing"]
    raise UserError(f"Expected a first step (got {last[0]!r})")
