"""Locks of directories."""

from pathlib import Path

from pipeline.runtime.locks import hold_directory


def test_a_lock_is_held_by_one_and_free_afterwards(tmp_path: Path) -> None:
    with hold_directory(tmp_path, wait=False) as first, hold_directory(tmp_path, wait=False) as second:
        assert (first, second) == (True, False)
    with hold_directory(tmp_path, wait=True) as again:
        assert again
