"""Spaces of settings: what they may vary, and one line for what they may not."""

from pathlib import Path

import pytest

from pipeline.config.loading import load_config
from pipeline.models.networks import MODELS
from pipeline.runtime.errors import UserError
from pipeline.tuning.durations import parse_duration
from pipeline.tuning.space import Choices, Range, read_space


def read(tmp_path: Path, text: str) -> object:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    return read_space(file, load_config())


def test_lists_and_ranges_nested_or_dotted(tmp_path: Path) -> None:
    space = read(
        tmp_path,
        "train.learning_rate: {from: 1e-4, to: 1e-2, scale: log}\n"
        "model: {dropout: {from: 0.0, to: 0.5}, unit_layers: {from: 1, to: 3}, residual: [true, false]}\n",
    )
    assert space == {
        "train.learning_rate": Range(1e-4, 1e-2, "log"),
        "model.dropout": Range(0.0, 0.5),
        "model.unit_layers": Range(1, 3, whole=True),
        "model.residual": Choices((True, False)),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected settings to vary"),
        ("model.droput: [0, 1]", "unknown key 'model.droput'; did you mean 'model.dropout'"),
        ("model.heads: [2, 4]", "got 'model.heads'.: only settings of the network and its training"),
        ("train.epochs: [2, 4]", "got 'train.epochs'.: trials are compared at the same epoch"),
        ("data.source: [cora, pubmed]", "got 'data.source'"),
        ("model.dropout: 0.5", "to be a list of values or a range"),
        ("model.dropout: [0.5]", "two or more different values"),
        ("model.dropout: [0.1, 0.1]", "two or more different values"),
        ("model.dropout: [[1], [2]]", "list of plain values"),
        ("model.dropout: {from: 0.1}", "to have from, to and optionally scale"),
        ("model.dropout: {from: 0.1, to: 0.5, step: 2}", "to have from, to and optionally scale"),
        ("model.dropout: {from: 0.5, to: 0.1}", "from a number to a larger one"),
        ("model.dropout: {from: a, to: b}", "from a number to a larger one"),
        ("model.dropout: {from: 0.0, to: 0.5, scale: log}", "above 0 on a log scale"),
        ("model.dropout: {from: 0.1, to: 0.5, scale: cubic}", "to be linear or log"),
        ("model.dropout: {from: 0.1, to: 1.5}", "Expected 'model.dropout' to be less than 1"),
        ("train.optimiser: [adam, sgd]", "Expected 'train.optimiser' to be"),
    ],
)
def test_bad_spaces_get_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "space.yaml"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_comes_with_a_space(model: str) -> None:
    assert "train.learning_rate" in read_space(None, load_config(None, {"model.name": model}))


def test_places_lie_between_the_ends() -> None:
    assert [Range(1e-4, 1e-2, "log").place(value) for value in (1e-4, 1e-3, 1e-2)] == pytest.approx(
        [0, 0.5, 1]
    )
    assert [Choices((8, 16, 64)).place(value) for value in (8, 16, 64)] == [0, 0.5, 1]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("1h30m", 5400), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration("--time-budget", text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1w", "-5s", "0", "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="Expected '--time-budget' to be a duration"):
        parse_duration("--time-budget", text)
