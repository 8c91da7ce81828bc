"""Journals: order, acknowledgement, incomplete lines, and one owner at a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.tracking.journal import Journal, State, left_over, read_state, state_path

OPENED: list[Journal] = []


@pytest.fixture(autouse=True)
def _close_files() -> Iterator[None]:
    """Close what a test leaves open, as the end of a process would."""
    yield
    for journal in OPENED:
        journal.close(keep=True)
    OPENED.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journals" / "0001-driver.jsonl"


def opened(path: Path) -> Journal:
    journal = Journal.open(path)
    assert journal is not None
    OPENED.append(journal)
    return journal


def test_records_come_back_in_order_until_acknowledged(path: Path) -> None:
    journal = opened(path)
    for step in range(3):
        journal.append("metrics", 1000 + step, {"loss": step / 2}, step)
    first, *rest = list(journal.pending())
    assert (first.kind, first.time, first.step, first.values) == ("metrics", 1000, 0, {"loss": 0.0})
    journal.acknowledge(first)
    assert list(journal.pending()) == rest
    assert not journal.empty
    journal.acknowledge(rest[-1])
    assert journal.empty


def test_what_was_acknowledged_is_remembered_by_the_next_process(path: Path) -> None:
    journal = opened(path)
    journal.append("tags", 1, {"a": "b"})
    journal.append("tags", 2, {"c": "d"})
    journal.update(run_id="r1")
    journal.acknowledge(next(journal.pending()))
    journal.close(keep=True)
    again = opened(path)
    assert again.state.run_id == "r1"
    assert [record.time for record in again.pending()] == [2]
    assert [record.time for record in again.records()] == [1, 2]


def test_a_torn_last_line_is_not_a_record(path: Path) -> None:
    journal = opened(path)
    journal.append("tags", 1, {"a": "b"})
    journal.close(keep=True)
    with path.open("ab") as file:
        file.write(b'{"kind": "tags", "ti')
    assert [record.time for record in opened(path).pending()] == [1]


def test_a_journal_has_one_owner(path: Path) -> None:
    journal = opened(path)
    assert Journal.open(path) is None
    journal.close(keep=True)
    opened(path)


def test_a_finished_journal_leaves_nothing(path: Path) -> None:
    journal = opened(path)
    journal.update(run_id="r1")
    assert state_path(path).exists()
    journal.close(keep=False)
    assert list(path.parent.iterdir()) == []
    assert read_state(path) == State()


def test_left_over_journals_are_sorted_by_the_time_in_their_name(tmp_path: Path) -> None:
    names = ["0003-driver.jsonl", "0001-driver.jsonl", "0002-worker.jsonl", "0001-driver.state"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in left_over(tmp_path)] == sorted(n for n in names if n.endswith("jsonl"))
