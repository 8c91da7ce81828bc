"""Records are written atomically, read back equal, and found by what they describe."""

from pathlib import Path

import pytest

from pipeline.reproduce.records import IN_SOURCE, Measurement, Records, Source, TrainingRecord
from pipeline.runtime.errors import UserError
from tests.pipeline.reproduce.conftest import SOURCE, training


def test_what_is_added_is_found_again(tmp_path: Path) -> None:
    records = Records(tmp_path)
    one = training("cornell", "vanilla", split=3, variant="tau=0.1")
    records.add(one)
    assert records.training("cornell", "vanilla", "tau=0.1", "quick", 3, 0) == one
    assert records.training("cornell", "vanilla", "", "quick", 3, 0) is None
    assert list(records.trainings()) == [one]
    measured = Measurement(
        study="complexity",
        case={"model": "sparse", "nodes": 1000},
        values={"epoch_seconds": 0.5},
        seconds=1.0,
        source=SOURCE,
    )
    records.add(measured)
    assert records.measurement("complexity", {"model": "sparse", "nodes": 1000}) == measured
    assert records.measurements("complexity") == [measured]


def test_a_later_record_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for value in (0.5, 0.7):
        records.add(training("cornell", "vanilla", value=value))
    assert [record.value for record in records.trainings()] == [0.7]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    records = Records(tmp_path)
    one = training("cornell", "vanilla")
    records.add(one)
    (tmp_path / one.path).write_text("{}")
    with pytest.raises(UserError, match=r"split0-seed0\.json.*remove it"):
        list(records.trainings())


def test_every_record_in_the_repository_is_valid() -> None:
    records = Records(IN_SOURCE)
    for record in records.trainings():
        assert record.source.revision
        assert "/" not in record.source.command.replace("n/a", "")
        assert isinstance(record, TrainingRecord)
    assert Source.here("cocn reproduce node").command == "cocn reproduce node"
