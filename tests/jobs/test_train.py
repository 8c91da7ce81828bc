"""`cocn train` with presets: each model trains with its own settings, and flags still hold."""

import json
from pathlib import Path

import pytest

from jobs import cli
from pipeline.tracking import TrackingStore


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


@pytest.mark.usefixtures("local_ray")
def test_each_model_trains_with_its_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COCN_DATA_ROOT", raising=False)
    words = ("--data", "minesweeper", "--quick", "--epochs", 1, "--set", "data.side=8", "--output", tmp_path)
    assert cocn("train", "sparse", "segment", *words, "--json") == 0
    result = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert [training["epochs"] for training in result["trainings"]] == [1, 1]
    runs = TrackingStore(f"sqlite:///{tmp_path}/mlflow.db").read_runs("cocn", result["parent_run"])
    settings = {run.tags["cocn.model"]: run.params for run in runs}
    assert {name: params["model.inception_kernels"] for name, params in settings.items()} == {
        "sparse": "[3, 5]",
        "segment": "[]",
    }
    assert {params["model.unit_layers"] for params in settings.values()} == {"5"}


def test_a_model_without_a_preset_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cocn("train", "segment", "--data", "cornell", "--preset", "--output", tmp_path) == 2
    assert "there are expanded, vanilla" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
