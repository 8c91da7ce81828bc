"""`cocn race`: on any store, with no settings; run again, it trains nothing twice."""

import json
import shutil
from pathlib import Path

import pytest

from jobs import cli
from pipeline.ingest.generators import minesweeper
from pipeline.store.access import create_store
from tests.pipeline.conftest import Parameters


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


def test_a_race_on_a_store_needs_no_settings_and_does_nothing_twice(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    tracking_database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs").mkdir()
    shutil.copy(tracking_database, tmp_path / "runs" / "mlflow.db")
    store = create_store(tmp_path / "store", minesweeper(12, num_splits=3), Parameters())
    words = ("race", store.path, "--models", "sgc,vanilla", "--splits", 1, "--epochs", 2)
    flags = ("--output", tmp_path / "runs", "--json")
    assert cocn(*words, *flags) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {one["model"]: one["status"] for one in first["standings"]} == {
        "sgc": "finished",
        "vanilla": "finished",
    }
    assert first["protocol"] == "2 epochs on each of 1 split"
    winner = first["standings"][0]
    assert f"{'our' if winner['ours'] else 'the opponent'} {winner['model']} wins" in first["verdict"]
    assert any(one["on_front"] for one in first["standings"])
    page = Path(first["report"]).read_text(encoding="utf-8")
    assert "Result against time" in page
    assert first["verdict"].split(";")[0] in page

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("result.json")}
    assert len(before) == 2
    assert cocn(*words, *flags) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert again["standings"] == first["standings"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, told in (
        (("--epochs", 2, "--time-budget", "1m"), "'--epochs' or '--time-budget' (got both)"),
        (("--time-budget", "soon"), "Expected a time such as 90s, 30m or 2h (got 'soon')"),
        (("--models", "polynorm"), "did you mean 'polynormer'?"),
    ):
        assert cocn("race", "minesweeper", *words, "--output", tmp_path) == 2
        assert told in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
