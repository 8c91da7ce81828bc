"""The allocator for large tensors: a process starts itself again with it, once, unless the user chose one."""

import os
import subprocess
import sys

import pytest

from pipeline.runtime import allocator

PROGRAM = """
import os, sys
from pipeline.runtime.allocator import is_in_use, restart_with_allocator
restart_with_allocator()
print(os.getpid(), is_in_use(), sorted({"LD_PRELOAD", "MALLOC_CONF", "COCN_ALLOCATOR"} & set(os.environ)))
print(*sys.argv[1:])
"""

needs_library = pytest.mark.skipif(allocator.find_library() is None, reason="Ray brings no jemalloc here")


def start(**environment: str) -> tuple[int, list[str]]:
    """Run the program; its process id as we know it and the lines that it printed."""
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "MALLOC_CONF")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "two words", "--flag"],
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return process.pid, output.splitlines()


@needs_library
def test_a_process_starts_itself_again_under_the_same_id_and_leaves_nothing_to_its_children() -> None:
    pid, lines = start()
    assert lines == [f"{pid} True []", "two words --flag"]


@needs_library
def test_what_the_user_chose_stays() -> None:
    pid, lines = start(MALLOC_CONF="narenas:2")
    assert lines == [f"{pid} False ['MALLOC_CONF']", "two words --flag"]


def test_without_the_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "find_library", lambda: None)
    monkeypatch.delenv(allocator.MARK, raising=False)
    assert allocator.allocator_environment() == {}
    allocator.restart_with_allocator()
