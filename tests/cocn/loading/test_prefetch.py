"""Work ahead of the reader: in order, bounded, ended with the block."""

import threading
import time

import pytest

from cocn.loading.prefetch import Prefetcher


def wait_until(count: int, started: list[int]) -> None:
    deadline = time.monotonic() + 10
    while len(started) < count and time.monotonic() < deadline:
        time.sleep(0.001)


def test_results_come_in_order() -> None:
    with Prefetcher(lambda item: item * item, range(20), depth=3) as results:
        assert list(results) == [item * item for item in range(20)]


def test_works_ahead_of_the_reader_but_not_further_than_asked() -> None:
    started: list[int] = []

    def prepare(item: int) -> int:
        started.append(item)
        return item

    with Prefetcher(prepare, range(100), depth=2) as results:
        assert next(results) == 0
        # While the reader is busy with one result, two wait for it and a third waits for room.
        wait_until(4, started)
        time.sleep(0.1)
        assert started == [0, 1, 2, 3]


def test_leaving_early_stops_the_thread() -> None:
    with Prefetcher(lambda item: item, range(10**9), depth=2) as results:
        next(results)
    assert "prefetch" not in [thread.name for thread in threading.enumerate()]


def test_errors_come_after_the_results_before_them() -> None:
    with Prefetcher(lambda item: 1 // (2 - item), range(5), depth=5) as results:
        assert [next(results), next(results)] == [0, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)
