"""Peak memory of this process."""

import re
import resource
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


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


def reset_peak() -> bool:
    """Let the peak begin anew at what is resident now; False where only the kernel may do that."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True
