"""`cocn compare` and `cocn track sync` from end to end on a SQLite store."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs import cli
from pipeline.config.loading import load_config
from pipeline.tracking.runs import start_child, start_parent

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory, tracking_database: Path) -> Path:
    """A store with three sparse and two segment trainings, one repeated and one failed."""
    directory = tmp_path_factory.mktemp("store")
    shutil.copy(tracking_database, directory / "mlflow.db")
    config = load_config(
        None,
        {"output": directory, "tracking.uri": f"sqlite:///{directory / 'mlflow.db'}", "model.name": "sparse"},
    )
    scores = [
        ("sparse", 0, 0.1),
        ("sparse", 0, 0.80),
        ("sparse", 1, 0.82),
        ("segment", 0, 0.90),
        ("segment", 1, 0.93),
    ]
    with start_parent("test", config) as parent:
        for model, split, score in scores:
            with start_child(
                parent, config, model=model, dataset="minesweeper", seed=0, split=split, metric="roc_auc"
            ) as child:
                for epoch in range(3):
                    child.log(epoch, {"val_metric": score * (epoch + 1) / 3, "train_loss": 1.0 / (epoch + 1)})
                child.log(2, {"test_metric": score, "train_seconds": 1.0 + split, "peak_memory_mb": 100.0})
        start_child(parent, config, model="sparse", dataset="minesweeper", seed=0, split=2).finish("FAILED")
    return directory


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            cli.main([str(word) for word in words])
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return call


def test_json_holds_the_rows_and_the_report_is_written(run: Run, output: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    code, out, _ = run("compare", "--output", output, "--json", "--out", report)
    assert code == 0
    found = json.loads(out.splitlines()[-1])
    assert [(row["model"], row["num_runs"]) for row in found["rows"]] == [("segment", 2), ("sparse", 2)]
    assert found["rows"][1]["mean"] == pytest.approx(0.81)
    assert found["contrasts"][0]["num_pairs"] == 2
    assert found["notes"] == [
        "1 training without a result is left out.",
        "1 training repeated later with the same split and seed is left out.",
    ]
    assert "<svg" in report.read_text(encoding="utf-8")


def test_people_get_a_table_and_words(run: Run, output: Path) -> None:
    code, out, _ = run("compare", "--output", output, "--models", "segment")
    assert code == 0
    assert "On minesweeper, segment reaches" in out


@pytest.mark.parametrize(
    ("flag", "value", "line"),
    [
        (
            "--models",
            "sparce",
            "Expected '--models' to name what was trained: segment, sparse (got 'sparce')",
        ),
        ("--dataset", "mine", "Expected '--dataset' to name what was trained: minesweeper (got 'mine')"),
        (
            "--experiment",
            "coco",
            "Expected '--experiment' to name an experiment (got 'coco'; there are cocn)",
        ),
    ],
)
def test_a_mistyped_name_is_one_line(run: Run, output: Path, flag: str, value: str, line: str) -> None:
    code, out, err = run("compare", "--output", output, flag, value)
    assert (code, out, err) == (2, "", f"cocn: {line}\n")


def test_nothing_to_compare_yet_creates_nothing(run: Run, tmp_path: Path) -> None:
    code, _, err = run("compare", "--output", tmp_path / "none")
    assert code == 2
    assert "train something first" in err
    assert list(tmp_path.iterdir()) == []


def test_sync_with_nothing_left_over(run: Run, output: Path) -> None:
    code, out, _ = run("track", "sync", "--output", output, "--json")
    assert code == 0
    assert json.loads(out) == {"sent": 0, "waiting": 0, "in_use": 0, "reason": ""}
