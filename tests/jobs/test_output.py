"""Results as JSON and as text."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from jobs.output import emit, to_json
from pipeline.config.loading import Config


@dataclass(frozen=True)
class Inner:
    values: tuple[float, ...]


@dataclass(frozen=True)
class Result:
    num_rows: int
    seconds: float
    path: Path
    inner: Inner


RESULT = Result(num_rows=12345, seconds=float("nan"), path=Path("a b/c"), inner=Inner((1.5, float("inf"))))


def test_json_is_one_strict_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit(RESULT, as_json=True)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0]) == {
        "num_rows": 12345,
        "seconds": None,
        "path": "a b/c",
        "inner": {"values": [1.5, None]},
    }


def test_text_shows_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    emit(RESULT, as_json=False)
    shown = capsys.readouterr().out
    assert "num rows" in shown
    assert "12,345" in shown


def test_a_view_replaces_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    emit(RESULT, as_json=False, view="three words here")
    assert capsys.readouterr().out == "three words here\n"


def test_models_and_numpy_scalars_become_json() -> None:
    assert json.loads(to_json({"n": np.int64(3), "x": np.float32(0.5)})) == {"n": 3, "x": 0.5}
    assert json.loads(to_json(Config()))["train"]["epochs"] == Config().train.epochs
