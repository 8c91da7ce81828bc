"""Processes killed in the middle of the positions: no finished work is lost, and the store is the same."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pipeline.config.settings import SourceOptions
from pipeline.ingest.stage import ingest
from pipeline.positions.stage import PositionParameters, write_positions
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore

ROOT = Path(__file__).resolve().parents[3]
SOURCE = SourceOptions(source="power-law", num_nodes=24_000)
# Many small groups, each long enough to be caught at work.
PARAMETERS = PositionParameters(depth="full", batch_sources=256)
BATCHES = 94

DRIVER = """
import sys
from pathlib import Path
from pipeline.positions.stage import PositionParameters, write_positions
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore

write_positions(open_store(Path(sys.argv[1])), PositionParameters.model_validate_json(sys.argv[2]))
"""


def contents(store: GraphStore) -> dict[str, bytes]:
    files = [path for path in store.path.rglob("*") if path.is_file() and path.name != "timings.json"]
    return {str(path.relative_to(store.path)): path.read_bytes() for path in files}


def finished_groups(store: GraphStore) -> int:
    return len(list(store.path.glob(".partial/positions-*/scratch/profiles-*.arrow")))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    store = ingest(SOURCE, tmp_path_factory.mktemp("undisturbed") / "store").store
    write_positions(store, PARAMETERS, parallel=False)
    return contents(store)


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return ingest(SOURCE, tmp_path / "store").store


@contextlib.contextmanager
def kill_one_worker(store: GraphStore) -> Iterator[list[int]]:
    """Kill the first busy worker after a few groups are done."""
    killed: list[int] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set() and not killed:
            time.sleep(0.01)
            if finished_groups(store) < 3:
                continue
            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error, IndexError):
                    if not killed and "run_group" in process.cmdline()[0]:
                        process.kill()
                        killed.append(process.pid)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join(30)


@pytest.mark.usefixtures("local_ray")
def test_killed_worker(store: GraphStore, undisturbed: dict[str, bytes]) -> None:
    with kill_one_worker(store) as killed:
        assert write_positions(store, PARAMETERS)
    assert len(killed) == 1
    assert contents(store) == undisturbed


@pytest.mark.usefixtures("local_ray")
def test_killed_driver(store: GraphStore, undisturbed: dict[str, bytes]) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(store.path), PARAMETERS.model_dump_json()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 90
        while finished_groups(store) < 5:
            assert driver.poll() is None, "the driver ended before it could be killed"
            assert time.monotonic() < deadline, "the driver did not finish five groups in time"
            time.sleep(0.005)
        driver.kill()
    finally:
        # What is left of its session: the Ray that it started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait(30)
    assert not open_store(store.path).has("positions")
    assert write_positions(open_store(store.path), PARAMETERS)
    measured = open_store(store.path).timings()["positions"]
    assert measured.batches == BATCHES
    assert measured.resumed_batches is not None
    assert 5 <= measured.resumed_batches < BATCHES
    assert contents(open_store(store.path)) == undisturbed


# A disk of its own that shrinks to what the graph takes, and grows once the run has stopped.
FULL_DISK = """
import json, subprocess, sys
from pathlib import Path
from pipeline.runtime.errors import UserError
from pipeline.storage.files import SPACE_MARGIN_BYTES, file_sha256
from pipeline.config.settings import SourceOptions
from pipeline.ingest.stage import ingest
from pipeline.positions.stage import PositionParameters, write_positions

disk = Path(sys.argv[1])
def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "none", disk], check=True)

mount("size=256m")
store = ingest(SourceOptions.model_validate_json(sys.argv[2]), disk / "store").store
parameters = PositionParameters.model_validate_json(sys.argv[3])
used = sum(path.stat().st_size for path in disk.rglob("*"))
mount("remount", f"size={used + SPACE_MARGIN_BYTES + 6 * 2**20}")
try:
    write_positions(store, parameters, parallel=False)
except UserError as error:
    told = str(error)
mount("remount", "size=256m")
write_positions(store, parameters, parallel=False)
files = [path for path in store.path.rglob("*") if path.is_file() and path.name != "timings.json"]
digests = {str(path.relative_to(store.path)): file_sha256(path) for path in files}
resumed = store.timings()["positions"].resumed_batches
print(json.dumps({"told": told, "resumed": resumed, "digests": digests}))
"""


def test_full_disk(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    private = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*private, "true"], capture_output=True, check=False, timeout=30).returncode:
        pytest.skip("this system lets no one mount a disk of their own")
    program = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(
        [*private, *program, SOURCE.model_dump_json(), PARAMETERS.model_dump_json()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "MiB free under" in found["told"]
    assert "\n" not in found["told"]
    assert 0 < found["resumed"] < BATCHES
    assert found["digests"] == {name: hashlib.sha256(text).hexdigest() for name, text in undisturbed.items()}
