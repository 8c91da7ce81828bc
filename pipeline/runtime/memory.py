"""Peak memory of this process."""

import re
import resource
import sys
from pathlib import Path

from pipeline.runtime.errors import UserError

STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peak_memory(status: Path = STATUS) -> int:
    """The largest resident size this process ever had, or had since `reset_peak`, in bytes.

    Linux hands `ru_maxrss` on across fork and exec, so a small child of a large process would report
    the parent's peak; the high-water mark in /proc belongs to the process alone.
    """
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found.group(1)) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def require_memory(expected_bytes: int, what: str, remedy: str) -> None:
    """Refuse what this machine has not the memory for.

    Args:
        expected_bytes: What it takes.
        what: What takes it, as the message says it.
        remedy: What to ask for instead.

    Raises:
        UserError: If all of the memory would not do, in use or not.
    """
    import psutil

    there = int(psutil.virtual_memory().total)
    if expected_bytes > there:
        raise UserError(
            f"Expected {what} to fit into {there / 2**30:,.0f} GiB of memory "
            f"(got {expected_bytes / 2**30:,.0f} GiB): take {remedy}"
        )


def reset_peak() -> bool:
    """Let the peak begin anew at what is resident now; False where only the kernel may do that."""
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True
