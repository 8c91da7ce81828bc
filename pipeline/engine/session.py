"""Ray: attach to the cluster that RAY_ADDRESS names, or start one on this machine, on loopback only."""

import importlib
import logging
import os
import secrets
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = "RAY_ADDRESS"
# Without this, Ray's GCS, raylet and metrics ports listen on every interface.
LOOPBACK_SWITCH = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def _prepare_environment() -> None:
    """Set what Ray must find in the environment before it starts; existing values are kept.

    A local cluster listens on loopback and requires a token known only to this process and its children.
    If RAY_ADDRESS names a cluster, that cluster's own settings apply.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if os.environ.get(ADDRESS):
        return
    os.environ.setdefault(LOOPBACK_SWITCH, "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] == "token" and not _has_token():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


@contextmanager
def ray_session(num_cpus: int | None = None) -> Iterator[None]:
    """Make Ray available while the block runs: the running one, the one RAY_ADDRESS names, or a local one.

    Args:
        num_cpus: CPUs of a local cluster; all by default, and ignored when attaching.
    """
    _prepare_environment()
    import ray

    if ray.is_initialized():
        yield
    elif os.environ.get(ADDRESS):
        ray.init(address=os.environ[ADDRESS], logging_level=logging.ERROR, log_to_driver=_is_debugging())
        try:
            yield
        finally:
            ray.shutdown()
    else:
        with local_cluster(num_cpus):
            yield


@contextmanager
def local_cluster(cpus: int | None = None, *, dashboard: bool = False) -> Iterator[None]:
    """Start Ray on this machine, reachable from this machine only, and stop it when the block ends.

    Args:
        cpus: Number of CPUs it offers; all by default. Workers get as many threads as their task has CPUs,
            through OMP_NUM_THREADS, which Ray sets.
        dashboard: Serve the dashboard and the job API on 127.0.0.1.
    """
    _prepare_environment()
    import ray

    _read_switches_again()
    with _own_signal_handler():
        ray.init(
            address="local",
            num_cpus=cpus,
            include_dashboard=dashboard,
            dashboard_host="127.0.0.1",
            logging_level=logging.ERROR,
            log_to_driver=_is_debugging(),
            runtime_env=_quoted_interpreter(),
        )
    try:
        yield
    finally:
        with _own_signal_handler():
            ray.shutdown()


def _quoted_interpreter() -> dict[str, str] | None:
    """Quote the interpreter's path for the shell that Ray passes it to, in case it contains spaces."""
    quoted = shlex.quote(sys.executable)
    return {"py_executable": quoted} if quoted != sys.executable else None


@contextmanager
def _own_signal_handler() -> Iterator[None]:
    """Restore the SIGTERM handler that Ray replaces.

    When it starts, Ray installs a handler that aborts the process after three seconds, too soon to end
    runs; when it stops, it resets the signal to its default, which ends the process immediately.
    """
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _has_token() -> bool:
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (Path.home() / ".ray" / "auth_token").is_file()


def _is_debugging() -> bool:
    return os.environ.get("COCN_DEBUG") == "1"


def _read_switches_again() -> None:
    """Make Ray read the environment again.

    Ray reads these switches when it is imported, and sorted imports put `import ray` first, so it would
    miss them; there is no public way to have them read again.
    """
    from ray._private import ray_constants

    native = importlib.import_module("ray._raylet")
    ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(LOOPBACK_SWITCH) != "0"
    native.Config.initialize("")
    native.AuthenticationTokenLoader.instance().reset_cache()
