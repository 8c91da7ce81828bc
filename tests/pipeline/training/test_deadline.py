"""The time of a training counts over all attempts."""

import pytest

import pipeline.training.deadline
from pipeline.training.deadline import Deadline


def test_time_of_earlier_attempts_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(pipeline.training.deadline.time, "monotonic", lambda: now)
    deadline = Deadline(10.0, spent=7.0)
    assert deadline.spent() == 7.0
    now = 103.0
    assert (deadline.spent(), deadline.is_over()) == (10.0, False)
    now = 103.5
    assert deadline.is_over()


def test_without_a_budget_there_is_no_end() -> None:
    assert not Deadline(None, spent=1e9).is_over()
