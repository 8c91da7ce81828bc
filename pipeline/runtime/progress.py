"""Progress of long work: a rich bar on a terminal, plain lines elsewhere, always on stderr."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

_PLAIN_INTERVAL_SECONDS = 5.0


class Bar(Protocol):
    """What long work reports its progress to."""

    def advance(self, count: int = 1, **fields: object) -> None:
        """Count `count` more units as done; `fields` (a loss, a shard) are shown next to the rate."""


@contextmanager
def progress(description: str, total: int, unit: str = "steps") -> Iterator[Bar]:
    """Show the progress of `total` units of work while the block runs.

    Args:
        description: What is being done, in one or two words.
        total: How many units there are in all.
        unit: What is counted, in the plural.
    """
    if sys.stderr.isatty():
        with _rich_bar(description, total, unit) as bar:
            yield bar
        return
    lines = PlainBar(description, total, unit)
    yield lines
    lines.finish()


class PlainBar:
    """Prints a line every few seconds and one at the end, for logs and pipes."""

    def __init__(self, description: str, total: int, unit: str, stream: TextIO | None = None) -> None:
        self._description = description
        self._total = total
        self._unit = unit
        self._stream = stream or sys.stderr
        self._start = self._last = time.monotonic()
        self._done = 0
        self._fields: dict[str, object] = {}

    def advance(self, count: int = 1, **fields: object) -> None:
        self._done += count
        self._fields.update(fields)
        now = time.monotonic()
        if now - self._last >= _PLAIN_INTERVAL_SECONDS:
            self._last = now
            self._print(now - self._start)

    def finish(self) -> None:
        self._print(time.monotonic() - self._start)

    def _print(self, seconds: float) -> None:
        rate = format_rate(self._done, seconds, self._unit)
        line = f"{self._description}: {self._done:,}/{self._total:,} {self._unit}, {seconds:.1f} s, {rate}"
        self._stream.write("  ".join([line, format_fields(self._fields)]).rstrip() + "\n")
        self._stream.flush()


def format_rate(count: int, seconds: float, unit: str) -> str:
    """The rate in three significant digits: `41.2 batches/s`."""
    rate = count / seconds if seconds > 0 else 0.0
    return f"{rate:,.0f} {unit}/s" if rate >= 100 else f"{rate:.3g} {unit}/s"


def format_fields(fields: dict[str, object]) -> str:
    """`loss=0.312 shard=4`: floats in three significant digits, the rest as they are."""
    return " ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in fields.items()
    )


@contextmanager
def _rich_bar(description: str, total: int, unit: str) -> Iterator[Bar]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[extra]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(description, total=total, rate="", extra="")
        start = time.monotonic()
        done = 0
        shown: dict[str, object] = {}

        class RichBar:
            def advance(self, count: int = 1, **fields: object) -> None:
                nonlocal done
                done += count
                shown.update(fields)
                rate = format_rate(done, time.monotonic() - start, unit)
                display.update(task, advance=count, rate=rate, extra=format_fields(shown))

        yield RichBar()
