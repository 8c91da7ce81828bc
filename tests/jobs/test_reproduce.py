"""`cocn reproduce`: one clear line for mistakes, pages and figures where they belong."""

import json
from pathlib import Path

import pytest

from jobs import cli
from pipeline.reproduce import command, information_loss


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nodes"], "did you mean 'node'?"),
        (["node", "--datasets", "genius"], "dataset of this table"),
        (["node", "--models", "gcn"], "model of this table"),
        (["node", "--time-budget", "soon"], "30m"),
        (["node", "--settings", "tiny"], "paper or quick"),
        (["isomorphism"], "--data-root"),
        (["complexity", "--models", "gcn"], "model among"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert cocn("reproduce", *words, "--output", tmp_path / "runs", "--records", tmp_path / "records") == 2
    told = capsys.readouterr().err.strip()
    assert line in told
    assert "\n" not in told


def test_a_figure_is_drawn_and_its_numbers_end_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(information_loss, "TAUS", (0.1, 10.0))
    monkeypatch.setattr("pipeline.reproduce.drawing.TAUS", (0.1, 10.0))
    monkeypatch.setattr(information_loss.run_cases, "__kwdefaults__", {"shapes": ("ring",), "epochs": 20})
    words = ("information-loss", "--output", tmp_path / "runs", "--records", tmp_path / "records", "--json")
    assert cocn("reproduce", *words) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [case["case"]["tau"] for case in found["cases"]] == [0.1, 10.0] * 2
    assert (tmp_path / "runs" / "figures" / "information-loss.png").stat().st_size > 1000


def test_commands_in_records_name_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["cocn", "reproduce", "node", "--data-root", "/a/b", "--splits", "3", "--output=/c", "--json"]
    monkeypatch.setattr("sys.argv", words)
    assert command.typed_command() == "cocn reproduce node --splits 3 --data-root DATASETS"
