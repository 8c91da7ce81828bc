"""Several Ray nodes on this machine: a head with the job API, and nodes that can be killed and replaced.

Run as a program it is that cluster, in a process of its own: it takes commands on standard input, one a
line, and answers each with a line of JSON.
"""

import ctypes
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.engine.session import LOOPBACK_SWITCH
from pipeline.tracking.mlflow_server import free_port
from tests.storage import ENVIRONMENT

OBJECT_STORE_BYTES = 100 * 2**20
# Of Linux: flags of unshare and mount.
NEW_MOUNTS, RECURSIVE, PRIVATE = 0x20000, 0x4000, 0x40000
# A dead node is noticed after one or two seconds instead of thirteen.
NOTICE_QUICKLY = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@dataclass(frozen=True)
class Nodes:
    """A head without CPUs and nodes with one each.

    Attributes:
        private: A directory that is another one on every node, where this system allows that.
    """

    private: Path
    dashboard: str
    gcs: str
    token: str
    process: "subprocess.Popen[str]"

    def kill_node(self) -> int:
        """Kill a node's raylet with every worker on it; returns how many processes that were."""
        return int(self._command("kill")["killed"])

    def add_node(self) -> None:
        self._command("add")

    def environment(self) -> dict[str, str]:
        """The environment that a program needs to reach the cluster, without that of another Ray."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        return {**inherited, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "OMP_NUM_THREADS": "1"}

    def _command(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return read_answer(self.process)


def read_answer(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
    raise AssertionError(f"the cluster ended with code {process.wait(10)}")


@contextmanager
def start_nodes(count: int, log: Path) -> Iterator[Nodes]:
    """Start a head and `count` nodes on loopback, with a token, and stop them when the block ends."""
    port, token = free_port(), secrets.token_hex(32)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {
        **inherited,
        # A job's `python` is the first on the path of the cluster's processes.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        LOOPBACK_SWITCH: "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        **ENVIRONMENT,
    }
    # A job joins the cluster that last wrote its address to Ray's directory: this one has a directory of its
    # own, which is short because sockets lie in it.
    directory = tempfile.mkdtemp(prefix="ray-")
    private = Path(tempfile.mkdtemp(prefix="private-"))
    command = [sys.executable, "-m", "tests.nodes", str(port), str(count), directory, str(private)]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            env=environment,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        try:
            gcs = read_answer(process)["gcs"]
            yield Nodes(private, f"http://127.0.0.1:{port}", gcs, token, process)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
    for path in (directory, private):
        shutil.rmtree(path, ignore_errors=True)


def mount_own_disk(place: str) -> None:
    """Mount an empty disk over a directory, for processes started from now on."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(NEW_MOUNTS) == 0:
        library.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None)
        library.mount(b"none", place.encode(), b"tmpfs", 0, b"size=64m")


def main(port: int, count: int, directory: str, private: str) -> None:
    import psutil
    from ray._private.utils import write_ray_address
    from ray.cluster_utils import Cluster

    head = {
        "num_cpus": 0,
        "include_dashboard": True,
        "dashboard_host": "127.0.0.1",
        "dashboard_port": port,
        # Its usual port may belong to another Ray on this machine; without one of its own the head's agent
        # takes no jobs.
        "dashboard_agent_listen_port": free_port(),
        "object_store_memory": OBJECT_STORE_BYTES,
        "temp_dir": directory,
        "_system_config": NOTICE_QUICKLY,
    }
    cluster = Cluster(initialize_head=True, head_node_args=head)
    write_ray_address(cluster.address, directory)

    def add() -> Any:
        mount_own_disk(private)
        return cluster.add_node(
            num_cpus=1,
            object_store_memory=OBJECT_STORE_BYTES,
            dashboard_agent_listen_port=free_port(),
            # Nodes share this machine's disk: in one directory they would delete each other's packages.
            runtime_env_dir_name=f"runtime_resources_{secrets.token_hex(4)}",
        )

    nodes = [add() for _ in range(count)]
    answer({"gcs": cluster.address})
    for line in sys.stdin:
        if line.strip() == "add":
            nodes.append(add())
            answer({"nodes": len(nodes)})
        else:
            node = nodes.pop(0)
            raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
            # The raylet alone would leave its workers to finish as orphans.
            family = [raylet, *raylet.children(recursive=True)]
            for process in family:
                process.kill()
            answer({"killed": len(family)})
    cluster.shutdown()


def answer(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
