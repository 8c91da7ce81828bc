"""What is made of trials: the best, its file, what mattered, and the page."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import yaml

from pipeline.config.loading import load_config
from pipeline.tuning.outcome import Trial, Tuned, apply_point, best_config, best_of, measure_importance
from pipeline.tuning.report import draw_trials, render_report
from pipeline.tuning.space import Choices, Range

SPACE = {"train.learning_rate": Range(1e-4, 1e-1, "log"), "model.hidden_channels": Choices((8, 16, 32))}


def trials(count: int = 30) -> list[Trial]:
    """Trials whose score depends on the learning rate alone."""
    draw = np.random.default_rng(0)
    found = []
    for number in range(count):
        rate = float(10 ** draw.uniform(-4, -1))
        point = {"train.learning_rate": rate, "model.hidden_channels": int(draw.choice([8, 16, 32]))}
        score = 1 - abs(np.log10(rate) + 2)
        found.append(Trial(number=number, point=point, status="finished", epochs=3, val_metric=score))
    return found


def tuned(found: list[Trial]) -> Tuned:
    best = best_of(found)
    assert best is not None
    importance = measure_importance(found, SPACE)
    return Tuned(
        "segment", "<graph>", "roc_auc", best, importance, tuple(found), Path("best.yaml"), Path("r"), None
    )


def test_the_setting_that_decides_matters_most() -> None:
    importance = measure_importance(trials(), SPACE)
    assert importance["train.learning_rate"] > 0.8
    assert abs(sum(importance.values()) - 1) < 1e-9
    assert measure_importance(trials(3), SPACE) == {}


def test_the_best_file_is_a_configuration_that_gives_the_trial(tmp_path: Path) -> None:
    config = load_config(
        None, {"model.heads": 4, "data.source": "minesweeper", "data.side": 12, "output": tmp_path}
    )
    point = {"train.learning_rate": 0.02, "model.hidden_channels": 64}
    file = tmp_path / "best.yaml"
    file.write_text(best_config(config, point))
    read = load_config([file])
    wanted = apply_point(config, point)
    assert (read.model, read.train, read.segments, read.positions) == (
        wanted.model,
        wanted.train,
        wanted.segments,
        wanted.positions,
    )
    assert read.data.side == 12
    assert "output" not in yaml.safe_load(file.read_text())
    assert "hidden_channels" in file.read_text()  # tuned, though it is the default


def test_failed_trials_are_never_the_best() -> None:
    failed = Trial(number=99, point={}, status="failed", epochs=0, val_metric=None, problem="x")
    assert best_of([failed]) is None
    best = best_of([*trials(5), failed])
    assert best is not None
    assert best.number != 99


def test_the_page_draws_a_line_per_scored_trial_and_escapes_names() -> None:
    done = tuned(trials(6))
    drawing = ElementTree.fromstring(draw_trials(done, SPACE))  # noqa: S314 - our own drawing
    lines = [node for node in drawing.iter() if node.tag == "polyline"]
    assert len(lines) == 6
    assert lines[-1].get("class") == "line best"
    assert all(len((line.get("points") or "").split()) == 3 for line in lines)
    page = render_report(done, SPACE)
    assert "&lt;graph&gt;" in page
    assert "<graph>" not in page
