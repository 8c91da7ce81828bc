"""Tasks give the same results on Ray and inline."""

import pytest

from pipeline.engine.tasks import open_tasks


def add(left: int, right: int) -> int:
    return left + right


def fail() -> None:
    raise ValueError("no")


def test_inline_work_is_done_as_it_is_asked_for() -> None:
    done: list[int] = []
    with open_tasks(parallel=False) as tasks:
        results = tasks.each(done.append, [(1,), (2,)])
        assert done == []
        next(results)
        assert done == [1]
        assert tasks.get(tasks.submit(add, tasks.put(3), 4)) == 7


def test_ray_passes_values_for_handles_and_keeps_the_order(local_ray: None) -> None:
    with open_tasks(parallel=True) as tasks:
        three = tasks.put(3)
        seven = tasks.submit(add, three, 4)
        assert list(tasks.each(add, [(seven, 1), (three, 1)])) == [8, 4]
        with pytest.raises(ValueError, match="no"):
            tasks.get(tasks.submit(fail))
