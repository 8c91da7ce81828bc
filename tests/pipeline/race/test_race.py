"""A race: every model that fits takes part, a failure is a row, and running it again trains nothing twice."""

import shutil
from pathlib import Path

import pytest

from pipeline.comparison.statistics import Comparison, Contrast, Row
from pipeline.config.loading import load_config
from pipeline.ingest.generators import minesweeper
from pipeline.presets import load_preset
from pipeline.race.attempts import MOST_KILLS, Attempts
from pipeline.race.course import run_course
from pipeline.race.entrants import Request, choose_models, enter
from pipeline.race.verdict import find_front, pronounce, race, race_table
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from pipeline.training.results import read_epochs
from tests.pipeline.conftest import Parameters

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@pytest.fixture
def _tracked(tmp_path: Path, tracking_database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "runs").mkdir()
    shutil.copy(tracking_database, tmp_path / "runs" / "mlflow.db")


@pytest.fixture
def plain_store(tmp_path: Path) -> GraphStore:
    return create_store(tmp_path / "store", minesweeper(12, num_splits=3), Parameters())


def row(model: str, mean: float, seconds: float) -> Row:
    return Row("toy", model, "accuracy", 3, mean, 0.01, mean, "run", seconds, None, None, 100.0, 10)


@pytest.mark.usefixtures("_tracked")
def test_a_failing_model_is_a_row_with_its_reason(plain_store: GraphStore, tmp_path: Path) -> None:
    overrides = {
        "output": tmp_path / "runs",
        "model.hidden_channels": 9,  # which the four heads of gat cannot share
    }
    request = Request(str(plain_store.path), ("gat", "sgc"), splits=3, epochs=1, overrides=overrides)
    told: list[str] = []
    found = race(request, told.append)
    assert [(one.model, one.status) for one in found.standings] == [("sgc", "finished"), ("gat", "failed")]
    assert "multiple of the 4 heads" in found.standings[1].reason
    assert found.standings[0].splits == 3
    assert found.standings[0].std is not None
    assert any("gat is out" in line for line in told)
    assert race_table(found).row_count == 2
    with pytest.raises(UserError, match=r"at least one model to end with a result \(got none: gat"):
        race(Request(str(plain_store.path), ("gat",), epochs=1, overrides=overrides), told.append)


@pytest.mark.usefixtures("_tracked")
def test_time_is_shared_out_to_the_splits_and_a_cut_is_told(plain_store: GraphStore, tmp_path: Path) -> None:
    request = Request(
        str(plain_store.path), ("sgc",), splits=2, time_budget=0.02, overrides={"output": tmp_path / "runs"}
    )
    course = run_course(request, lambda line: None)
    assert course.unfinished == {"sgc"}
    assert course.entrants[0].config.train.time_budget == 0.01
    assert all(len(read_epochs(Path(training.directory))) < 100 for training in course.trainings)


def test_what_fits_takes_part(plain_store: GraphStore, tmp_path: Path) -> None:
    everyone = choose_models((), plain_store, "node")
    assert set(everyone) == {
        *("mlp", "sgc", "sign", "linkx", "gcn", "sage", "gat", "sgformer", "polynormer"),
        *("segment", "sparse", "expanded", "vanilla"),
    }
    links = choose_models((), plain_store, "link")
    assert "segment" not in links
    assert "gcn" in links
    assert choose_models(("gcn", "gcn", "mlp"), plain_store, "node") == ("gcn", "mlp")


def test_models_take_the_settings_of_the_dataset_or_those_for_any_graph(
    plain_store: GraphStore, tmp_path: Path
) -> None:
    named = Request("minesweeper", splits=2, time_budget=60.0, overrides={"output": tmp_path})
    tuned = enter("gcn", named, plain_store).config
    expected = load_config(None, load_preset("minesweeper", "gcn", quick=True))
    assert tuned.model == expected.model
    assert tuned.train.time_budget == 30.0
    anywhere = enter("gcn", Request(str(plain_store.path), epochs=7), plain_store).config
    assert (anywhere.train.epochs, anywhere.train.patience) == (7, 0)
    assert anywhere.model.opponent.layers == 4
    ours = enter("sparse", Request(str(plain_store.path)), plain_store).config
    assert ours.data.store == plain_store.path


def test_a_training_that_was_killed_twice_is_not_begun_again(tmp_path: Path) -> None:
    file = tmp_path / "race" / "attempts.json"
    for _ in range(MOST_KILLS):
        assert not Attempts(file).is_hopeless("gcn split 0")
        Attempts(file).begin("gcn split 0")
    assert Attempts(file).is_hopeless("gcn split 0")
    Attempts(file).end("gcn split 0")
    assert not Attempts(file).is_hopeless("gcn split 0")


def test_the_front_is_who_nobody_beats_in_both() -> None:
    rows = [row("gcn", 0.9, 9.0), row("segment", 0.8, 10.0), row("mlp", 0.7, 2.0), row("sgc", 0.6, 3.0)]
    assert find_front(rows) == {"gcn", "mlp"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row("gcn", 0.9, 9.0), row("mlp", 0.85, 1.0), row("segment", 0.8, 18.0)],
            "the opponent gcn wins with a test accuracy of 0.900 ± 0.010; our best, segment, reaches 0.800 ± "
            "0.010, 0.100 less (significant: p = 0.01, paired over only 3 splits). "
            "Of the two, gcn trains 2.0 times faster.",
        ),
        (
            [row("segment", 0.9, 9.0), row("gcn", 0.8, 9.0)],
            "our segment wins with a test accuracy of 0.900 ± 0.010; the best opponent, gcn, reaches 0.800 ± "
            "0.010, 0.100 less (significant: p = 0.01, paired over only 3 splits).",
        ),
        (
            [row("gcn", 0.9, 9.0), row("mlp", 0.8, 9.0)],
            "the opponent gcn wins with a test accuracy of 0.900 ± 0.010, ahead of mlp with 0.800 ± 0.010; "
            "nobody ran against it from the other side.",
        ),
    ],
)
def test_the_verdict_says_who_wins_and_is_honest_about_it(rows: list[Row], said: str) -> None:
    contrasts = tuple(
        Contrast("toy", rows[0].model, other.model, 3, 0.1, 0.05, 0.15, 0.01, significant=True)
        for other in rows[1:]
    )
    assert pronounce(Comparison("race", tuple(rows), contrasts, (), ())) == f"On toy, {said}"
