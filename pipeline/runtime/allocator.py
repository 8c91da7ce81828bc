"""An allocator that keeps memory for large tensors from one training step to the next.

The allocator of the C library gives every block of more than 32 MB back to the kernel as soon as it is free,
and the kernel clears each page again when the next step asks for it: on large graphs that is half the time.
If it is set to keep such blocks, it splits them up and peak memory doubles. jemalloc, which ships with Ray,
reuses them whole; it must be loaded before the first allocation, so a process restarts itself with it.
"""

import importlib.util
import os
import sys
from pathlib import Path

#: Keep free memory, in one pool for all threads, so that no thread's free blocks lie idle.
_SETTINGS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1"
#: Tells a process that it has already been restarted.
MARK = "COCN_ALLOCATOR"


def allocator_environment() -> dict[str, str]:
    """Variables for the environment of a new process; none where the allocator is not installed.

    A process whose user has chosen an allocator keeps it.
    """
    library = find_library()
    if library is None or "LD_PRELOAD" in os.environ or "MALLOC_CONF" in os.environ:
        return {}
    return {"LD_PRELOAD": str(library), "MALLOC_CONF": _SETTINGS}


def find_library() -> Path | None:
    """The shared library of jemalloc inside Ray's package, found without importing Ray."""
    found = importlib.util.find_spec("ray") if sys.platform == "linux" else None
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).parent / "core" / "libjemalloc.so"
    return library if library.exists() else None


def restart_with_allocator() -> None:
    """Restart this process with the allocator, at most once; its children do not inherit it."""
    if os.environ.pop(MARK, None) is not None:
        for name in ("LD_PRELOAD", "MALLOC_CONF"):
            os.environ.pop(name, None)
        return
    variables = allocator_environment()
    if variables:
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **variables, MARK: "1"})  # noqa: S606 - no shell wanted


def is_in_use() -> bool:
    """Whether this process is running with the allocator."""
    maps = Path("/proc/self/maps")
    return maps.exists() and "libjemalloc" in maps.read_text()
