"""Work done in a thread ahead of its reader."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

POLL_SECONDS = 0.05


class Prefetcher(Generic[Item, Result]):
    """Runs `prepare` on each item in a thread, at most `depth` results ahead of the reader.

    Used in a `with` block; leaving it stops and joins the thread. An exception in `prepare` is raised in the
    reader.
    """

    def __init__(self, prepare: Callable[[Item], Result], items: Iterable[Item], depth: int) -> None:
        self._prepare = prepare
        self._items = items
        self._ready: queue.Queue[tuple[Result] | BaseException | None] = queue.Queue(maxsize=max(1, depth))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)

    def __enter__(self) -> Iterator[Result]:
        self._thread.start()
        return self._results()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _results(self) -> Iterator[Result]:
        while (entry := self._ready.get()) is not None:
            if isinstance(entry, BaseException):
                raise entry
            yield entry[0]

    def _run(self) -> None:
        try:
            for item in self._items:
                if not self._put((self._prepare(item),)):
                    return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the reader's thread
            self._put(error)

    def _put(self, entry: tuple[Result] | BaseException | None) -> bool:
        """Wait for room; False if the reader has left."""
        while not self._stop.is_set():
            try:
                self._ready.put(entry, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False
