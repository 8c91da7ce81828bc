"""Functions run as Ray tasks, or in this process if the work takes less time than starting Ray."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pipeline.engine.session import ray_session

Handle = Any


class Tasks(Protocol):
    """Runs functions; their results and shared values are passed by handle."""

    def put(self, value: object) -> Handle:
        """Store a value once for all tasks that take its handle."""

    def submit(self, function: Callable[..., object], *arguments: object) -> Handle:
        """Run `function`; handles among the arguments arrive as their values."""

    def get(self, handle: Handle) -> Any:
        """Wait for a value."""

    def each(self, function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> Iterator[Any]:
        """Run `function` on each tuple of arguments; yield results in that order, as they become ready."""


class _InlineTasks:
    """Runs everything immediately, in order; a handle is the value itself."""

    def put(self, value: object) -> Handle:
        return value

    def submit(self, function: Callable[..., object], *arguments: object) -> Handle:
        return function(*arguments)

    def get(self, handle: Handle) -> Any:
        return handle

    def each(self, function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> Iterator[Any]:
        return (function(*arguments) for arguments in calls)


class _RayTasks:
    """Runs each function as a one-CPU Ray task; Ray retries those whose worker dies."""

    def put(self, value: object) -> Handle:
        import ray

        return ray.put(value)

    def submit(self, function: Callable[..., object], *arguments: object) -> Handle:
        import ray

        return ray.remote(num_cpus=1)(function).remote(*arguments)

    def get(self, handle: Handle) -> Any:
        import ray

        return ray.get(handle)

    def each(self, function: Callable[..., object], calls: Iterable[tuple[object, ...]]) -> Iterator[Any]:
        handles = [self.submit(function, *arguments) for arguments in calls]
        return (self.get(handle) for handle in handles)


@contextmanager
def open_tasks(parallel: bool) -> Iterator[Tasks]:
    """Tasks on Ray (the running one, or one started here), or inline."""
    if not parallel:
        yield _InlineTasks()
        return
    with ray_session():
        yield _RayTasks()
