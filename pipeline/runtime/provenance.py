"""Where a result comes from: revision of the source, versions of the libraries, the device."""

import getpass
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_LIBRARIES = (
    "cocn",
    "torch",
    "torch-geometric",
    "torch-sparse",
    "ray",
    "mlflow",
    "pyarrow",
    "networkit",
    "numba",
    "numpy",
)
SOURCE = Path(__file__).resolve().parents[2]
RECORDS = "pipeline/paper/records"
#: What measurements write into a checkout; it does not affect the next one.
_RESULTS = (RECORDS, "RESULTS.md")


@dataclass(frozen=True)
class Revision:
    """A git commit, and whether the files differ from it."""

    commit: str | None
    dirty: bool


def source_revision(directory: Path = SOURCE) -> Revision:
    """The revision of the checkout that contains `directory`; None for an installed wheel."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None or _git(directory, "ls-files", "--error-unmatch", "pyproject.toml") is None:
        return Revision(None, False)
    code = (":(top)", *(f":(top,exclude){path}" for path in _RESULTS))
    return Revision(
        commit, bool(_git(directory, "status", "--porcelain", "--untracked-files=no", "--", *code))
    )


def library_versions() -> dict[str, str]:
    """Versions of the installed libraries that can affect a result."""
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def device_name() -> str:
    """The GPU's name, or the processor's."""
    import torch

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"cpu ({_processor()}, {torch.get_num_threads()} threads)"


def user_name() -> str:
    """Who is running this; containers may have a user id without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.split(": ", 1)[1] for line in lines if line.startswith("model name")), platform.machine()
    )


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=directory, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
