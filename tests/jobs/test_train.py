"""`cocn train`: each model trains with its own preset below the flags; graphs and links train as nodes do."""

import json
import shutil
from pathlib import Path

import pytest

from jobs import cli
from jobs.commands.train import preset_settings
from pipeline.config.loading import Config


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


def test_each_model_has_its_preset_below_the_file_and_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("data: {source: minesweeper}\ntrain: {patience: 3}\n")
    settings = preset_settings(
        ["sparse", "segment"],
        file,
        {"train.epochs": 1, "train.clip": None},
        published=True,
        quick=False,
    )
    kernels = {name: config.model.inception_kernels for name, config in settings.items()}
    assert kernels == {"sparse": (3, 5), "segment": ()}
    for config in settings.values():
        assert (config.train.epochs, config.train.patience, config.model.unit_layers) == (1, 3, 5)


def test_opponents_have_settings_of_their_own_without_being_asked() -> None:
    settings = preset_settings(["segment", "sgc"], None, {}, published=False, quick=False)
    assert settings["segment"] == Config()
    assert settings["sgc"].train.learning_rate == 0.02


def test_a_model_without_a_preset_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cocn("train", "segment", "--data", "cornell", "--preset", "--output", tmp_path) == 2
    assert "there are expanded, vanilla" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_graphs_and_links_train_and_are_compared_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tracking_database: Path
) -> None:
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    common = (
        "--epochs",
        1,
        "--output",
        tmp_path,
        "--set",
        "data.num_graphs=60",
        "--set",
        "data.side=8",
        "--json",
    )
    told = []
    for words in (
        ("gcn", "sage", "--data", "motifs"),
        ("gcn", "--data", "motifs", "--protocol", "gin"),
        ("gcn", "--data", "minesweeper", "--task", "link"),
    ):
        assert cocn("train", *words, *common) == 0
        told.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert [row["metric"] for answer in told for row in answer["summaries"]] == [
        "accuracy",
        "accuracy",
        "accuracy",
        "mrr",
    ]
    assert told[1]["summaries"][0]["protocol"] == "gin"
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert cocn("compare", "--tracking-uri", uri, "--json") == 0
    compared = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sorted((row["dataset"], row["model"]) for row in compared["rows"]) == [
        ("minesweeper links", "gcn"),
        ("motifs", "gcn"),
        ("motifs", "sage"),
        ("motifs (gin protocol)", "gcn"),
    ]
    assert cocn("train", "segment", "--data", "motifs", *common) == 2
    assert "segment, whose windows" in capsys.readouterr().err
