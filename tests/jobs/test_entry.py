"""How the entry points of jobs handle their one argument."""

import json
from pathlib import Path

import pytest

from jobs.entry import read_config, run_job
from pipeline.config.loading import Config, load_config
from pipeline.runtime.errors import UserError


def test_a_configuration_travels_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(None, {"train.epochs": 3, "output": "/shared/runs", "data.store": "/shared/s"})
    monkeypatch.setenv("COCN_CONFIG", config.model_dump_json())
    assert read_config(["env:COCN_CONFIG"]) == config
    monkeypatch.setenv("COCN_CONFIG", '{"train": {"epoch": 3}}')
    with pytest.raises(UserError, match=r"got 'train\.epoch'"):
        read_config(["env:COCN_CONFIG"])
    monkeypatch.delenv("COCN_CONFIG")
    with pytest.raises(UserError, match="no such variable"):
        read_config(["env:COCN_CONFIG"])


def test_the_last_line_is_the_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_text("train: {epochs: 3}")

    def work(config: Config) -> dict[str, int]:
        return {"epochs": config.train.epochs}

    assert run_job("jobs.test", [str(tmp_path / "run.yaml")], work) == 0
    assert json.loads(capsys.readouterr().out) == {"epochs": 3}
    (tmp_path / "short.yaml").write_text("train: {epochs: 1}")
    assert run_job("jobs.test", [str(tmp_path / name) for name in ("run.yaml", "short.yaml")], work) == 0
    assert json.loads(capsys.readouterr().out) == {"epochs": 1}


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_job("jobs.test", [], str) == 2
    assert capsys.readouterr().err == "usage: python -m jobs.test CONFIG [CONFIG …]\n"
    (tmp_path / "run.yaml").write_text("trian: {}")
    assert run_job("jobs.test", [str(tmp_path / "run.yaml")], str) == 2
    assert "unknown key 'trian'; did you mean 'train'?" in capsys.readouterr().err


def test_an_interrupted_job_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_text("")

    def work(config: Config) -> None:
        raise KeyboardInterrupt

    assert run_job("jobs.test", [str(tmp_path / "run.yaml")], work) == 130
    assert "interrupted" in capsys.readouterr().err
