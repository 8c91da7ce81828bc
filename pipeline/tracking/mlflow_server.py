"""MLflow's server on loopback, for `cocn ui` and for tests."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords

HOST = "127.0.0.1"
_START_TIMEOUT_SECONDS = 150.0
_STOP_TIMEOUT_SECONDS = 10.0
# One worker process and no job queue: two processes instead of ten.
_ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@dataclass(frozen=True)
class Server:
    """A server that runs until its block ends."""

    address: str
    process: subprocess.Popen[bytes]

    def wait(self) -> None:
        """Return when the server ends."""
        self.process.wait()


@contextmanager
def serve(uri: str, port: int, artifacts: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """Run MLflow's server on loopback, on a file or database store.

    Args:
        uri: The store.
        port: Port on 127.0.0.1.
        artifacts: Directory for the artifacts of experiments created through the server.
        options: Further options for `mlflow server`.

    Raises:
        UserError: If the port is taken or the server does not come up.
    """
    _check_port(port)
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        HOST,
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    command += ["--artifacts-destination", artifacts.absolute().as_uri(), *options]
    # Not an argument: a process list would show the password of a database.
    environment = {**os.environ, **_ENVIRONMENT, "MLFLOW_BACKEND_STORE_URI": uri}
    with tempfile.TemporaryFile() as log:
        # A separate session: Ctrl-C reaches only us, and we end the server with all its processes.
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        server = Server(f"http://{HOST}:{port}", process)
        try:
            if not _comes_up(server):
                reason = hide_passwords(_last_line(log))
                raise UserError(f"Expected MLflow's server to start on {server.address} (got: {reason})")
            yield server
        finally:
            _stop(process)


def free_port() -> int:
    """A port on loopback that is free now."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _check_port(port: int) -> None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            reason = f"Expected port {port} on {HOST} to be free (got: {error.strerror})"
            raise UserError(f"{reason}; choose another with --port") from error


def _comes_up(server: Server) -> bool:
    deadline = time.monotonic() + _START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        try:
            with urllib.request.urlopen(f"{server.address}/health", timeout=2):  # noqa: S310 - our own http address
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_STOP_TIMEOUT_SECONDS)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait(_STOP_TIMEOUT_SECONDS)


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "no answer"
