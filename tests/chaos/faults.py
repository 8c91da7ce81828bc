"""The faults: what they hit, and how it is restored."""

import contextlib
import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.chaos.processes import Command
from tests.chaos.work import Job
from tests.storage import Line

#: Words of the command lines of Ray's processes.
NAMES = {"worker": ("ray::", "RayTrainWorker"), "raylet": ("raylet/raylet",), "gcs": ("gcs_server",)}
LONGEST_STOP_SECONDS = 4.0


@dataclass(frozen=True)
class Fault:
    """One fault, decided by seed and number.

    Attributes:
        kind: `kill`, `stop`, `disk full`, `read fails`, `cut`, `drop`, `hang` or `garbage`.
        target: the process or the line that it hits.
        moment: when, as a share of the undisturbed duration.
        seconds: how long it lasts, where it ends by itself.
    """

    kind: str
    target: str
    moment: float
    seconds: float

    @classmethod
    def draw(cls, job: Job, draw: random.Random) -> "Fault":
        processes = [(kind, part) for kind in ("kill", "kill", "stop") for part in ("driver", *job.parts)]
        disks = [("disk full", "driver"), ("read fails", "driver"), ("cut", "driver")]
        lines = [(kind, line) for kind in ("drop", "hang", "garbage") for line in job.lines] * 2
        kind, target = draw.choice([*processes, *disks, *lines])
        return cls(kind, target, round(draw.random(), 3), round(draw.uniform(0.2, LONGEST_STOP_SECONDS), 2))

    def describe(self) -> dict[str, object]:
        return asdict(self)


@contextmanager
def inject(fault: Fault, command: Command, here: Path, lines: dict[str, Line]) -> Iterator[bool]:
    """Disturb a command; what was disturbed is whole again when the block ends.

    Yields:
        Whether there was something to hit.
    """
    if fault.target in lines:
        line = lines[fault.target]
        line.disturb(fault.kind)
        try:
            time.sleep(fault.seconds)
            line.restore()
            yield True
        finally:
            line.restore()
        return
    victims = _find(command, fault.target)
    for victim in victims:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            _hit(victim, fault)
    if fault.kind == "cut":
        command.end()
        _cut_unfinished(here)
    yield bool(victims)


def _find(command: Command, target: str) -> list[psutil.Process]:
    family = command.family()
    if target == "driver":
        return family[:1]
    found = []
    for process in family[1:]:
        with contextlib.suppress(psutil.Error):
            if any(name in " ".join(process.cmdline()) for name in NAMES[target]):
                found.append(process)
    return found[:1]


def _hit(victim: psutil.Process, fault: Fault) -> None:
    if fault.kind in ("kill", "cut"):
        victim.kill()
    elif fault.kind == "stop":
        victim.suspend()
        time.sleep(fault.seconds)
        victim.resume()
    elif fault.kind == "disk full":
        # What a quota does: from now on no file grows beyond a page.
        resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (4096, 4096))
    elif fault.kind == "read fails":
        # From now on nothing can be opened.
        held = sum(1 for _ in Path(f"/proc/{victim.pid}/fd").iterdir())
        resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (held, held))


def _cut_unfinished(here: Path) -> None:
    """Cut files that were being written: a kill between two blocks of them."""
    for path in here.rglob("*"):
        unfinished = path.suffix == ".tmp" or any(
            part.startswith(".") for part in path.relative_to(here).parts
        )
        if path.is_file() and unfinished and path.suffix != ".sha256":
            os.truncate(path, path.stat().st_size // 2)
