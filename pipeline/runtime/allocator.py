"""Memory for large tensors, kept by the process from one training step to the next.

The allocator of the C library gives every block of more than 32 MB back to the kernel as soon as it is free,
and the kernel clears each page again when the next step asks for it: on large graphs that is half the time.
Told to keep such blocks it breaks them up, and peak memory doubles. jemalloc, which comes with Ray, reuses
them whole; it has to be there before the first allocation, so a process starts itself again with it.
"""

import importlib.util
import os
import sys
from pathlib import Path

#: Keep what is free, in one pool for all threads, so that no thread's free blocks lie idle.
_SETTINGS = "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:1"
#: Tells a process that it was started again already.
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
    """The shared library of jemalloc inside Ray's package, which is not imported for it."""
    found = importlib.util.find_spec("ray") if sys.platform == "linux" else None
    if found is None or found.origin is None:
        return None
    library = Path(found.origin).parent / "core" / "libjemalloc.so"
    return library if library.exists() else None


def restart_with_allocator() -> None:
    """Replace this process by itself with the allocator, at most once; its children do not inherit it."""
    if os.environ.pop(MARK, None) is not None:
        for name in ("LD_PRELOAD", "MALLOC_CONF"):
            os.environ.pop(name, None)
        return
    variables = allocator_environment()
    if variables:
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **variables, MARK: "1"})  # noqa: S606 - no shell wanted


def is_in_use() -> bool:
    """Whether this process runs with the allocator."""
    maps = Path("/proc/self/maps")
    return maps.exists() and "libjemalloc" in maps.read_text()
