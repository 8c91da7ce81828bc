"""Ctrl-C and SIGTERM end a command in the same orderly way."""

import signal
import threading
from types import FrameType

#: The exit code that shells, and typer, use for Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_received: list[int] = []


def heed_termination() -> None:
    """Let SIGTERM do what Ctrl-C does: close runs, remove temporary files, keep the last checkpoint."""
    _received.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def interruption() -> tuple[str, int]:
    """What ended the command, in one word, and the matching exit code."""
    return ("terminated", TERMINATED) if _received else ("interrupted", INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
