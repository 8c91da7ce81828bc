"""Commands in separate processes, forked from one that has imported everything, so that starting is cheap."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import psutil

PRELOAD = [
    "jobs.cli",
    "mlflow",
    "pipeline.comparison.publication",
    "pipeline.prediction.inference",
    "pipeline.training.campaign",
    "pipeline.training.prepare",
    "ray.train.torch",
]


def make_context() -> ForkServerContext:
    """Where commands are forked from."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def run_command(words: Sequence[str], environment: Mapping[str, str], log: str) -> None:
    """Become a command: its arguments, its environment, and one file for all its output."""
    import warnings

    from jobs import cli

    os.setsid()  # what the command starts ends with it
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number in (1, 2):
        os.dup2(descriptor, number)
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    cli.main(list(words))


@dataclass
class Command:
    """A command that runs."""

    process: ForkServerProcess
    log: Path

    @classmethod
    def start(
        cls, context: ForkServerContext, words: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> "Command":
        process = context.Process(target=run_command, args=(list(words), dict(environment), str(log)))
        process.start()
        return cls(process, log)

    @property
    def pid(self) -> int:
        return int(self.process.pid or 0)

    def family(self) -> list[psutil.Process]:
        """The process and everything that it started."""
        with contextlib.suppress(psutil.Error):
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        return []

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it runs longer than that."""
        self.process.join(seconds)
        return self.process.exitcode

    def end(self) -> None:
        """End it and everything that it started."""
        family = self.family()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.join(30)

    def last_line(self) -> str:
        """What it said last."""
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        return lines[-1][:300] if lines else ""


def sleep_until(moment: float, command: Command) -> None:
    """Wait for a moment of the monotonic clock, or for the command's end."""
    while time.monotonic() < moment and command.process.is_alive():
        time.sleep(0.002)
