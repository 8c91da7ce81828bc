"""The peak is this process's own, wherever it is read from."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime.memory import STATUS, peak_memory, reset_peak

BALLAST = 400 * 2**20
#: The kernel counts pages in batches, a few megabytes.
ROUNDING = 8 * 2**20


def test_the_peak_keeps_what_was_freed() -> None:
    ballast = b"x" * BALLAST
    during = peak_memory()
    del ballast
    assert during >= BALLAST
    assert peak_memory() >= during - ROUNDING


def test_the_peak_begins_anew() -> None:
    ballast = b"x" * BALLAST
    before = peak_memory()
    del ballast
    if not reset_peak():
        pytest.skip("the kernel keeps the peak here")
    assert peak_memory() < before - BALLAST / 2


@pytest.mark.skipif(not STATUS.exists(), reason="only Linux hands the peak on")
def test_a_child_does_not_report_the_peak_of_its_parent() -> None:
    child = "from pipeline.runtime.memory import peak_memory; print(peak_memory())"
    parent = (
        f"import subprocess, sys; ballast = b'x' * {BALLAST};"
        f"print(subprocess.run([sys.executable, '-c', {child!r}], capture_output=True, text=True).stdout)"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", parent], cwd=root, capture_output=True, text=True, check=True, timeout=60
    )
    assert 0 < int(done.stdout) < BALLAST / 2


@pytest.mark.parametrize("content", [None, "Name:\tpython\n"])
def test_without_the_mark_of_the_kernel_the_resource_usage_stands_in(
    tmp_path: Path, content: str | None
) -> None:
    status = tmp_path / "status"
    if content is not None:
        status.write_text(content)
    assert peak_memory(status) >= 2**20
