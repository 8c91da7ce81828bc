"""Marks: every setting says what it decides, and digests follow from that."""

import pytest
from pydantic import BaseModel

from pipeline.config.loading import Config, load_config, valid_keys
from pipeline.config.marks import decides, decisive_settings, marks_of
from pipeline.config.settings import SourceOptions


def test_every_setting_is_marked() -> None:
    keys = set(valid_keys())
    sections = {key for key in keys if any(other.startswith(f"{key}.") for other in keys)}
    assert {key for key, _ in marks_of(Config)} == keys - sections


def test_a_setting_without_a_mark_is_refused() -> None:
    class Inner(BaseModel):
        tau: float = decides("weights", 1.0)
        forgotten: int = 3

    class Outer(BaseModel):
        inner: Inner = Inner()

    with pytest.raises(TypeError, match=r"Expected 'inner.forgotten' to be declared with decides"):
        list(marks_of(Outer))


def test_the_first_thing_that_depends_on_a_setting_is_named() -> None:
    marks = dict(marks_of(Config))
    expected = {
        "data.side": "store",
        "data.data_root": "nothing",
        "data.store": "nothing",
        "positions.truncate": "inputs",
        "model.heads": "inputs",
        "model.tau": "weights",
        "train.epochs": "weights",
        "train.checkpoint_seconds": "nothing",
        "resources.workers": "nothing",
        "storage.cache": "nothing",
        "tracking.uri": "nothing",
        "output": "nothing",
    }
    assert {key: marks[key].decides for key in expected} == expected
    assert {key for key, mark in marks.items() if mark.repeats} == {"data.split", "train.seed"}
    assert {key for key, mark in marks.items() if mark.extends} == {"train.time_budget"}


def test_what_decides_is_read_by_dotted_key() -> None:
    config = load_config(None, {"model.tau": 2.0, "train.seed": 7, "train.time_budget": 9})
    found = decisive_settings(config, "weights")
    assert (found["model.tau"], found["train.seed"], found["train.time_budget"]) == (2.0, 7, 9)
    assert "data.side" not in found
    assert "train.checkpoint_seconds" not in found
    fewer = decisive_settings(config, "weights", repeats=False, extends=False)
    assert set(found) - set(fewer) == {"train.seed", "train.time_budget"}


def test_the_options_of_a_source_are_what_decides_the_store_and_where_its_files_lie() -> None:
    decisive = {key.removeprefix("data.") for key, mark in marks_of(Config) if mark.decides == "store"}
    assert set(SourceOptions.model_fields) == decisive | {"data_root"}
