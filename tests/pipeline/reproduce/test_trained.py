"""Tables of trainings: recorded once, then skipped, or continued if the budget or the settings changed."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.reproduce.records import Records
from pipeline.reproduce.studies import Cell, cells_of, select
from pipeline.reproduce.trained import (
    Request,
    compare,
    configure,
    is_settled,
    plan,
    run_table,
    settings_of,
)
from pipeline.runtime.durations import parse_duration
from pipeline.runtime.errors import UserError
from tests.pipeline.reproduce.conftest import training

TINY = {
    "data.side": 12,
    "model.hidden_channels": 4,
    "model.heads": 2,
    "model.unit_layers": 1,
    "train.epochs": 2,
    "train.warmup_steps": 0,
}


def request(output: Path, **changes: object) -> Request:
    made = Request(
        table="node-hetero",
        cells=select(cells_of("node-hetero"), ["minesweeper"], ["sparse"])[:1],
        splits=2,
        scale="quick",
        budget=None,
        again=False,
        base={**TINY, "output": output},
        command="cocn reproduce node-hetero",
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def test_trainings_are_recorded_once_and_shown_next_to_the_paper(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    (result,) = run_table(request(tmp_path), records, print)
    assert (result.splits, result.cut_short, result.metric) == (2, 0, "roc_auc")
    assert result.paper_mean == 90.72
    found = list(records.trainings())
    assert [record.split for record in found] == [0, 1]
    assert result.mean == pytest.approx(50 * sum(record.value for record in found))
    assert plan(request(tmp_path), records) == []
    assert len(plan(request(tmp_path, again=True), records)) == 2
    assert [todo.split for todo in plan(request(tmp_path, splits=3), records)] == [2]
    changed = request(tmp_path, base={**TINY, "output": tmp_path, "train.epochs": 3})
    assert len(plan(changed, records)) == 2


def test_a_budget_cuts_short_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    base = {**TINY, "output": tmp_path, "train.epochs": 30}
    (short,) = run_table(request(tmp_path, splits=1, base=base, budget=0.01), records, print)
    assert short.cut_short == 1
    (before,) = records.trainings()
    assert before.epochs < 30
    (whole,) = run_table(request(tmp_path, splits=1, base=base), records, print)
    assert whole.cut_short == 0
    (after,) = records.trainings()
    assert after.epochs == 30


def test_data_that_is_not_at_hand_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COCN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COCN_DATA_ROOT", raising=False)
    lines: list[str] = []
    cells = [Cell("squirrel-filtered", "vanilla"), *request(tmp_path).cells]
    results = run_table(request(tmp_path, cells=cells, splits=1), Records(tmp_path / "records"), lines.append)
    assert [result.mean is None for result in results] == [True, False]
    assert len(lines) == 1
    assert "squirrel-filtered" in lines[0]
    with pytest.raises(UserError, match="raw files of 'squirrel-filtered'"):
        run_table(request(tmp_path, cells=cells[:1], splits=1), Records(tmp_path / "others"), lines.append)


def test_records_are_settled_unless_settings_or_time_would_change_them(tmp_path: Path) -> None:
    todo = plan(request(tmp_path), Records(tmp_path / "none"))[0]
    known = training("minesweeper", "sparse", cut_short=True)
    assert not is_settled(known, todo.config, None)
    same = known.model_copy(update={"settings": settings_of(todo.config)})
    assert not is_settled(same, todo.config, None)
    assert not is_settled(same, todo.config, 61.0)
    assert is_settled(same, todo.config, 60.0)
    whole = same.model_copy(update={"cut_short": False})
    assert is_settled(whole, todo.config, None)
    settings = dict(whole.settings)
    assert settings.pop("train.optimiser") == "adamw"
    assert is_settled(whole.model_copy(update={"settings": settings}), todo.config, None)
    del settings["model.hidden_channels"]
    assert not is_settled(whole.model_copy(update={"settings": settings}), todo.config, None)


def test_the_papers_mean_less_its_deviation_is_the_bar() -> None:
    cell = select(cells_of("node-hetero"), ["minesweeper"], ["sparse"])[0]
    values = [(0.9054, False), (0.9056, True)]
    for value, reached in values:
        assert compare(cell, [training("minesweeper", "sparse", value=value)]).reached is reached
    assert compare(cell, []).reached is None


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "soon", "-3m", "0", "nan", "inf"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="30m"):
        parse_duration(text)


def test_folds_are_scored_after_one_epoch_for_all(tmp_path: Path) -> None:
    (cell,) = select(cells_of("graph"), ["mutag"], ["expanded"], ["preset"])
    curves = {0: 0.5, 1: 0.9, 2: 0.6}, {0: 0.5, 1: 0.4, 2: 0.8}
    result = compare(cell, [training("mutag", "expanded", curve=curve) for curve in curves])
    assert result.mean == pytest.approx(70.0)  # of epoch 2; the best of each fold would give 85
    assert configure(cell, request(tmp_path), 0).data.protocol == "gin"
    (honest,) = select(cells_of("graph"), ["mutag"], ["expanded"], ["epoch of another fold"])
    assert configure(honest, request(tmp_path), 0).data.protocol == "holdout"
