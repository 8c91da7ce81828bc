"""Peak memory of this process."""

import re
import resource
import sys
from pathlib import Path

from pipeline.runtime.errors import UserError

STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peak_memory(status: Path = STATUS) -> int:
    """The largest resident size of this process, ever or since `reset_peak`, in bytes.

    Linux passes `ru_maxrss` on across fork and exec, so a small child of a large process would report
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
    """Refuse work that does not fit into this machine's memory.

    Args:
        expected_bytes: The memory needed.
        what: What needs it, as named in the message.
        remedy: What to use instead.

    Raises:
        UserError: If it exceeds the machine's total memory, whether in use or not.
    """
    import psutil

    there = int(psutil.virtual_memory().total)
    if expected_bytes > there:
        raise UserError(
            f"Expected {what} to fit into {there / 2**30:,.0f} GiB of memory "
            f"(got {expected_bytes / 2**30:,.0f} GiB): use {remedy}"
        )


def reset_peak() -> bool:
    """Reset the peak to what is resident now; False if only the kernel may do that."""
    try:
        _RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True
