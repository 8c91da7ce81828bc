"""A handful of faults at random moments; `make chaos` injects as many as there is time for."""

import json
import random
import subprocess
import sys
from pathlib import Path

from tests.chaos.faults import Fault
from tests.chaos.work import JOBS

ROOT = Path(__file__).resolve().parents[1]
SEED = 3
FAULTS = 2


def test_the_same_command_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    command = [sys.executable, "-m", "tests.chaos", "--faults", str(FAULTS), "--seed", str(SEED)]
    done = subprocess.run(
        [*command, "--job", "predict", "--record", str(record)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    entries = [json.loads(line) for line in record.read_text().splitlines()]
    assert [entry["outcome"] for entry in entries] == ["same"] * FAULTS


def test_seed_and_number_decide_a_fault() -> None:
    drawn = [[Fault.draw(job, random.Random(f"{SEED}/{n}")) for n in range(50)] for job in JOBS]
    again = [[Fault.draw(job, random.Random(f"{SEED}/{n}")) for n in range(50)] for job in JOBS]
    assert drawn == again
    kinds = {fault.kind for faults in drawn for fault in faults}
    assert kinds == {"kill", "stop", "disk full", "read fails", "cut", "drop", "hang", "garbage"}
    targets = {fault.target for faults in drawn for fault in faults}
    assert targets == {"driver", "worker", "raylet", "gcs", "storage", "tracker"}
