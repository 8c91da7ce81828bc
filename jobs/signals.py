"""A polite request to end, from the system or from a person, ends a command in the same way."""

import signal
import threading
from types import FrameType

#: What a shell, and typer too, makes of Ctrl-C.
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_received: list[int] = []


def heed_termination() -> None:
    """Let SIGTERM do what Ctrl-C does: close runs, drop temporary files, keep the last checkpoint."""
    _received.clear()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def interruption() -> tuple[str, int]:
    """What ended the command, in a word, and the exit code that says so."""
    return ("terminated", TERMINATED) if _received else ("interrupted", INTERRUPTED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
