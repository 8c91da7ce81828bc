"""Checks of the machine: what a run needs, whether it is there, and how to fix it."""

import importlib.util
import os
import platform
import shutil
import socket
import sys
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from pipeline.runtime.passwords import without_password

Status = Literal["ok", "warning", "problem"]

_PACKAGES = ("torch", "torch-geometric", "ray", "mlflow", "pyarrow", "networkit", "numba", "numpy")
_MEMORY_NEEDED_GB = 3.0
_MEMORY_COMFORTABLE_GB = 6.0
DISK_NEEDED_GB = 1.0
_DISK_COMFORTABLE_GB = 5.0
#: A path that a tracking server serves only to users it knows.
_PROBE = "/api/2.0/mlflow/experiments/search?max_results=1"


@dataclass(frozen=True)
class Check:
    """One thing that was checked."""

    name: str
    status: Status
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Report:
    """All checks, and the worst status among them."""

    status: Status
    checks: tuple[Check, ...]


def examine(output: Path = Path("runs"), start_ray: bool = False) -> Report:
    """Check everything that a run needs.

    Args:
        output: The directory that runs write to; it need not exist.
        start_ray: Actually start Ray for a moment, instead of only checking whether it could start.
    """
    checks: list[Callable[[], Check]] = [
        _check_python,
        _check_packages,
        check_device,
        _check_cores,
        _check_memory,
        lambda: check_disk(output),
        _check_torch_sparse,
        _check_ray_start if start_ray else _check_ray,
        lambda: check_tracking(output),
    ]
    results = tuple(_guard(check) for check in checks)
    worst = max((result.status for result in results), key=("ok", "warning", "problem").index)
    return Report(status=worst, checks=results)


def _check_python() -> Check:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.prefix == sys.base_prefix:
        return Check("python", "warning", f"{detail}, no virtual environment", "run make setup and use .venv")
    return Check("python", "ok", detail)


def _check_packages() -> Check:
    found = {name: _installed_version(name) for name in _PACKAGES}
    missing = [name for name, number in found.items() if number is None]
    detail = ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())
    return Check("packages", "problem" if missing else "ok", detail, "run make setup" if missing else "")


def check_device() -> Check:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        return Check("device", "ok", f"cuda: {names}")
    if shutil.which("nvidia-smi") is not None:
        fix = "install a torch build for this machine's CUDA version"
        return Check("device", "warning", f"cpu, though there is a GPU (torch {torch.__version__})", fix)
    return Check("device", "ok", f"cpu (torch {torch.__version__})")


def _check_cores() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2:
        return Check("cores", "warning", f"{cores}", "use --workers 1: two workers need two cores")
    return Check("cores", "ok", f"{cores}")


def _check_memory() -> Check:
    import psutil

    available = psutil.virtual_memory().available / 2**30
    detail = f"{available:.1f} GB of {psutil.virtual_memory().total / 2**30:.1f} GB available"
    return _threshold(
        "memory", available, detail, _MEMORY_NEEDED_GB, _MEMORY_COMFORTABLE_GB, "close other programs"
    )


def check_disk(output: Path) -> Check:
    place = _existing_parent(output)
    free = shutil.disk_usage(place).free / 2**30
    if not os.access(place, os.W_OK):
        return Check("disk", "problem", f"cannot write to {place}", "choose another directory with --output")
    fix = "free some space or choose another directory with --output"
    return _threshold(
        "disk", free, f"{free:.1f} GB free in {place}", DISK_NEEDED_GB, _DISK_COMFORTABLE_GB, fix
    )


def _check_torch_sparse() -> Check:
    if importlib.util.find_spec("torch_sparse") is None:
        return Check("torch-sparse", "ok", "not installed (optional; make test-torch-sparse builds it)")
    return Check("torch-sparse", "ok", f"{_installed_version('torch-sparse')}")


def _check_ray() -> Check:
    """Whether Ray could start: it is importable, loopback can be bound, shared memory is large enough."""
    number = _installed_version("ray")
    if number is None:
        return Check("ray", "problem", "not installed", "run make setup")
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", 0))
        except OSError as error:
            fix = "bring up the loopback interface: ip link set lo up"
            return Check("ray", "problem", f"cannot listen on 127.0.0.1 ({error.strerror})", fix)
    shared = Path("/dev/shm")  # noqa: S108 - where Ray keeps its objects
    if shared.is_dir() and (free := shutil.disk_usage(shared).free / 2**30) < 0.5:
        fix = "give the container more shared memory: docker run --shm-size=2g"
        return Check("ray", "warning", f"{number}, {free:.2f} GB of shared memory", fix)
    return Check("ray", "ok", f"{number}, can listen on 127.0.0.1")


def _check_ray_start() -> Check:
    """Start Ray on loopback, run one task, stop it."""
    import ray

    from pipeline.engine.session import local_cluster

    with local_cluster(cpus=1):
        answer = ray.get(ray.remote(os.getpid).remote())
    return Check("ray", "ok", f"{ray.__version__}, started on 127.0.0.1 and ran a task in process {answer}")


def check_tracking(output: Path) -> Check:
    """Whether the tracking store can be reached, without creating it."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{output / 'mlflow.db'}"
    if uri.startswith("sqlite:///"):
        return _check_sqlite(Path(uri.removeprefix("sqlite:///")))
    if uri.startswith(("http://", "https://")):
        return _check_server(uri)
    return Check("mlflow store", "ok", f"{uri.split('://')[0]} store, checked when a run starts")


def _installed_version(name: str) -> str | None:
    """The version of an installed distribution, without importing it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _existing_parent(path: Path) -> Path:
    """The nearest existing directory above a path."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.is_dir())


def _check_sqlite(path: Path) -> Check:
    import sqlite3

    if not path.exists():
        return Check("mlflow store", "ok", f"{path} (created by the first run)")
    try:
        with sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True) as connection:
            runs = connection.execute("SELECT COUNT(*) FROM runs").fetchone()[0]
    except sqlite3.Error as error:
        fix = f"move {path} away; the next run creates a new one"
        return Check("mlflow store", "problem", f"{path}: {error}", fix)
    return Check("mlflow store", "ok", f"{path}, {runs} runs")


def _check_server(uri: str) -> Check:
    import urllib.error
    import urllib.request

    shown = without_password(uri)
    request = urllib.request.Request(shown.rstrip("/") + _PROBE, headers=_login(uri))  # noqa: S310 - http(s) only
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - http(s) only
            return Check("mlflow store", "ok", f"{shown} answers ({answer.status})")
    except urllib.error.HTTPError as error:
        fix = "check MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        return Check("mlflow store", "problem", f"{shown} refuses ({error})", fix)
    except (urllib.error.URLError, OSError) as error:
        fix = "start the server or unset MLFLOW_TRACKING_URI; runs are journalled locally until it answers"
        return Check("mlflow store", "warning", f"{shown} does not answer ({error})", fix)


def _login(uri: str) -> dict[str, str]:
    """The header that names the user: from the environment, else from the address."""
    address = urlsplit(uri)
    user = os.environ.get("MLFLOW_TRACKING_USERNAME") or unquote(address.username or "")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD") or unquote(address.password or "")
    if not user:
        return {}
    return {"Authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


def _threshold(name: str, value: float, detail: str, needed: float, comfortable: float, fix: str) -> Check:
    if value < needed:
        return Check(name, "problem", f"{detail}; {needed:g} GB are needed", fix)
    if value < comfortable:
        return Check(name, "warning", f"{detail}; {comfortable:g} GB are comfortable", fix)
    return Check(name, "ok", detail)


def _guard(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # noqa: BLE001 - a broken library is exactly what this command should report
        name = getattr(check, "__name__", "check").removeprefix("check_")
        return Check(name, "problem", f"{type(error).__name__}: {error}", "run make setup again")
