"""Revisions: code that differs from the commit is reported; results are not code."""

import subprocess
from pathlib import Path

from pipeline.runtime.provenance import source_revision


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True, timeout=60)


def test_changed_code_makes_a_revision_dirty_and_new_results_do_not(tmp_path: Path) -> None:
    assert source_revision(tmp_path).commit is None
    record = tmp_path / "pipeline" / "paper" / "records" / "one.json"
    record.parent.mkdir(parents=True)
    files = (tmp_path / "pyproject.toml", tmp_path / "RESULTS.md", record)
    for path in files:
        path.write_text("before")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--message", "first")
    assert not source_revision(tmp_path).dirty
    for path in files[1:]:
        path.write_text("after")
    clean = source_revision(tmp_path)
    assert clean.commit is not None
    assert not clean.dirty
    files[0].write_text("after")
    assert source_revision(tmp_path).dirty
