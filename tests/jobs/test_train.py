"""`cocn train` with presets: each model trains with its own settings, and flags still hold."""

from pathlib import Path

import pytest

from jobs import cli
from jobs.commands.train import preset_settings


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


def test_each_model_has_its_preset_below_the_file_and_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: {source: minesweeper}\ntrain: {patience: 3}\n")
    settings = preset_settings(
        ["sparse", "segment"], file, {"train.epochs": 1, "train.clip": None}, quick=False
    )
    kernels = {name: config.model.inception_kernels for name, config in settings.items()}
    assert kernels == {"sparse": (3, 5), "segment": ()}
    for config in settings.values():
        assert (config.train.epochs, config.train.patience, config.model.unit_layers) == (1, 3, 5)


def test_a_model_without_a_preset_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cocn("train", "segment", "--data", "cornell", "--preset", "--output", tmp_path) == 2
    assert "there are expanded, vanilla" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
