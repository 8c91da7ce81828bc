"""Operating-system locks on files and directories: they end with the process, however it ends."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone; False if another process holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def hold_directory(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a directory while the block runs.

    Args:
        path: The directory.
        wait: Wait for another process that holds it; otherwise the block receives False immediately.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if wait:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield True
        else:
            yield try_lock(descriptor)
    finally:
        os.close(descriptor)
