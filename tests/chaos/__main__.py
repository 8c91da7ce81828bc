"""`python -m tests.chaos`: disturb, run again, compare, record."""

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.tracking.mlflow_server import free_port, serve
from pipeline.tracking.mlflow_store import TrackingStore
from tests.chaos.faults import Fault, inject
from tests.chaos.processes import Command, make_context, sleep_until
from tests.chaos.work import JOBS, Bench, Facts, Job
from tests.storage import ENVIRONMENT, Line, serve_storage

UNITS = {"s": 1, "m": 60, "h": 3600}
#: A command that takes longer is a command that hangs.
LIMIT_SECONDS = 240.0
ATTEMPTS = 6
QUIET = {
    "OMP_NUM_THREADS": "1",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    **ENVIRONMENT,
}


class Harness:
    """Runs jobs on a bench and knows what each of them leaves when nothing disturbs it."""

    def __init__(self, bench: Bench, lines: dict[str, Line], root: Path) -> None:
        self._bench = bench
        self._lines = lines
        self._root = root
        self._context = make_context()
        self._expected: dict[str, tuple[Facts, float]] = {}

    def disturb(self, number: int, job: Job, seed: int) -> dict[str, object]:
        """One fault, then the same command until it succeeds; one line of the record."""
        expected, duration = self._reference(job)
        fault = Fault.draw(job, random.Random(f"{seed}/{number}"))
        here = self._directory(job, f"fault-{number}")
        start = time.monotonic()
        first = self._start(job, here)
        sleep_until(start + fault.moment * duration, first)
        with inject(fault, first, here, self._lines) as hit:
            code = first.wait(LIMIT_SECONDS)
        said, outcome = first.last_line(), "hung"
        first.end()
        attempts = 1
        while code is not None and code != 0 and attempts < ATTEMPTS:
            code, attempts = self._run(job, here)[0], attempts + 1
        if code is not None:
            found = self._bench_facts(job, here) if code == 0 else None
            outcome = "lost" if found is None else "same" if found == expected else "different"
        entry = {
            "number": number,
            "seed": seed,
            "job": job.name,
            **fault.describe(),
            "hit": hit,
            "attempts": attempts,
            "outcome": outcome,
            "said": said,
            "took": round(time.monotonic() - start, 1),
        }
        if outcome == "same":
            shutil.rmtree(here, ignore_errors=True)
        return entry

    def _reference(self, job: Job) -> tuple[Facts, float]:
        if job.name not in self._expected:
            here = self._directory(job, "undisturbed")
            start = time.monotonic()
            code, last = self._run(job, here)
            if code != 0:
                raise SystemExit(f"Expected '{job.name}' to succeed undisturbed (got code {code}: {last})")
            self._expected[job.name] = self._bench_facts(job, here), time.monotonic() - start
        return self._expected[job.name]

    def _bench_facts(self, job: Job, here: Path) -> Facts:
        return json.loads(json.dumps(job.facts(self._bench, here)))  # type: ignore[no-any-return]

    def _directory(self, job: Job, name: str) -> Path:
        here = self._root / f"{job.name.replace(' ', '-')}-{name}"
        here.mkdir()
        job.prepare(self._bench, here)
        return here

    def _start(self, job: Job, here: Path) -> Command:
        log = self._root / f"{here.name}.log"
        return Command.start(self._context, job.words(self._bench, here), QUIET, log)

    def _run(self, job: Job, here: Path) -> tuple[int | None, str]:
        command = self._start(job, here)
        code = command.wait(LIMIT_SECONDS)
        command.end()
        return code, command.last_line()


@contextmanager
def build_bench(root: Path, *, tracker: bool) -> Iterator[tuple[Bench, dict[str, Line]]]:
    """A store, a training on it, an object store and, if requested, a tracking server."""
    from pipeline.config.settings import SourceOptions
    from pipeline.tracking.runs import start_parent
    from pipeline.training.launch import train
    from pipeline.training.prepare import open_prepared
    from tests.pipeline.conftest import tiny_config

    database = root / "empty.db"
    TrackingStore(f"sqlite:///{database}").client.get_experiment_by_name("none")
    runs = root / "bench"
    runs.mkdir()
    shutil.copy(database, runs / "mlflow.db")
    data = SourceOptions(source="minesweeper", side=12)
    config = tiny_config(
        runs, data__source=data.source, data__side=data.side, data__store=str(root / "store"), train__epochs=2
    )
    store = open_prepared(config)
    with start_parent("train", config) as parent:
        done = train(config, store, parent)
    with serve_storage() as storage:
        lines = {"storage": storage.line}
        if not tracker:
            yield Bench(root / "store", done.checkpoint.parent, database, storage, ""), lines
            return
        shutil.copy(database, root / "server.db")
        with serve(f"sqlite:///{root / 'server.db'}", free_port(), root / "artifacts") as server:
            line = Line(int(server.address.rpartition(":")[2]))
            lines["tracker"] = line
            address = f"http://127.0.0.1:{line.port}"
            yield Bench(root / "store", done.checkpoint.parent, database, storage, address), lines
            line.close()


def run(faults: int, seed: int, budget: float, record: Path, names: list[str], root: Path) -> Counter[str]:
    """Inject faults until there were enough of them or time is up; returns how they ended."""
    jobs = [job for job in JOBS if not names or job.name in names]
    deadline, outcomes = time.monotonic() + budget, Counter[str]()
    with build_bench(root, tracker=any("tracker" in job.lines for job in jobs)) as (bench, lines):
        harness = Harness(bench, lines, root)
        with record.open("a", encoding="utf-8") as file:
            for number in range(faults):
                if time.monotonic() > deadline:
                    break
                entry = harness.disturb(number, jobs[number % len(jobs)], seed)
                file.write(json.dumps(entry) + "\n")
                file.flush()
                outcomes[str(entry["outcome"])] += 1
                sys.stderr.write(
                    f"{number}: {entry['job']}: {entry['kind']} {entry['target']}: {entry['outcome']}\n"
                )
    return outcomes


def seconds(text: str) -> float:
    """`90`, `90s`, `30m`, `1h`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"Expected a time such as 90s, 30m or 1h (got '{text}')")
    return float(match[1]) * UNITS[match[2] or "s"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=0, help="decides every fault")
    parser.add_argument("--time-budget", type=seconds, default=3600.0, help="such as 90s, 30m or 1h")
    parser.add_argument("--record", type=Path, default=Path("chaos.jsonl"), help="one line of JSON per fault")
    parser.add_argument("--job", action="append", default=[], choices=[job.name for job in JOBS])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as root:
        outcomes = run(chosen.faults, chosen.seed, chosen.time_budget, chosen.record, chosen.job, Path(root))
    sys.stdout.write(json.dumps({"faults": sum(outcomes.values()), **outcomes}) + "\n")
    return 0 if set(outcomes) == {"same"} else 1


if __name__ == "__main__":
    sys.exit(main())
