"""Presets: every one is a configuration, says what the paper says, and yields to files and flags."""

import re
from pathlib import Path

import pytest

from pipeline import presets
from pipeline.config.loading import load_config
from pipeline.paper import Result, load_tables
from pipeline.paper.registry import BENCHMARKS, BENCHMARKS_BY_NAME, FAMILY, Benchmark
from pipeline.presets import OPPONENTS, default_preset, load_preset, presets_of
from pipeline.runtime.errors import UserError

TRAINED = [benchmark for benchmark in BENCHMARKS if benchmark.task != "isomorphism"]
ALL = [(benchmark.name, model) for benchmark in TRAINED for model in presets_of(benchmark.name)]
PAIRS = [(dataset, model) for dataset, model in ALL if model in FAMILY]
TUNED = [(dataset, model) for dataset, model in ALL if model in OPPONENTS]
#: What the appendix allows everywhere.
ALLOWED = {
    "train.learning_rate": (1e-4, 1e-3),
    "train.weight_decay": (1e-4, 5e-4, 1e-3, 1e-2, 1e-1),
    "model.hidden_channels": (64, 128),
    "model.heads": (8, 10),
    "model.tau": (0.1, 1.0, 10.0),
    "model.kernel_size": (5, 7, 9),
}


@pytest.mark.parametrize(("dataset", "model"), PAIRS)
def test_a_preset_is_a_configuration_within_what_the_appendix_allows(dataset: str, model: str) -> None:
    preset = load_preset(dataset, model)
    config = load_config(None, preset)
    assert (config.data.source, config.model.name) == (dataset, model)
    for key, allowed in ALLOWED.items():
        assert preset[key] in allowed, key
    expected = (200, 100) if BENCHMARKS_BY_NAME[dataset].task == "graph" else (1000, 150)
    assert (config.train.epochs, config.train.patience) == expected


@pytest.mark.parametrize(("dataset", "model"), PAIRS)
def test_a_quick_preset_takes_fewer_epochs_of_a_network_no_larger(dataset: str, model: str) -> None:
    full, quick = (load_config(None, load_preset(dataset, model, quick=quick)) for quick in (False, True))
    assert quick.train.epochs < full.train.epochs
    for name in ("hidden_channels", "heads", "kernel_size", "unit_layers", "pool_layers"):
        assert getattr(quick.model, name) <= getattr(full.model, name), name
    assert quick.data == full.data


@pytest.mark.parametrize("benchmark", TRAINED, ids=lambda each: each.name)
def test_every_model_of_a_table_has_a_preset(benchmark: Benchmark) -> None:
    assert set(benchmark.models) <= set(presets_of(benchmark.name))


@pytest.mark.parametrize(
    "cell", load_tables()["setup"].entries, ids=lambda cell: f"{cell.dataset}-{cell.metric}"
)
def test_presets_follow_the_table_of_settings(cell: Result) -> None:
    printed = [float(choice) for choice in cell.printed.split(",")]
    for model in set(presets_of(cell.dataset)) & set(FAMILY):
        assert load_preset(cell.dataset, model)[f"model.{cell.metric}"] in printed


def test_every_file_is_used() -> None:
    folder = Path(presets.__file__).parent
    files = {str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml")}
    particular = {f"{dataset}/{model}" for dataset, model in ALL}
    extended = {
        name.strip()
        for path in folder.rglob("*.yaml")
        for names in re.findall(r"^extends: \[?([^\]#\n]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        for name in names.split(",")
    }
    assert files == particular | extended | {f"opponents/{model}" for model in OPPONENTS}


def test_splits_and_metric_come_with_a_preset() -> None:
    config = load_config(None, load_preset("genius", "segment"))
    assert (config.data.num_splits, config.data.train_share, config.data.validation_share) == (5, 0.5, 0.25)
    assert config.train.metric == "roc_auc"
    assert load_config(None, load_preset("mutag", "expanded")).train.metric == "accuracy"


@pytest.mark.parametrize("model", OPPONENTS)
def test_an_opponent_has_settings_for_any_graph(model: str) -> None:
    anywhere = default_preset(model)
    assert load_config(None, preset=anywhere).train.patience > 0
    here = load_preset("cornell", model)
    assert here == {**anywhere, "data.source": "cornell", "train.metric": "accuracy", "model.name": model}
    assert load_config(None, load_preset("mutag", model)).data.protocol == "gin"


@pytest.mark.parametrize(("dataset", "model"), TUNED)
def test_tuned_settings_say_where_they_are_from_and_yield_to_smaller_ones(dataset: str, model: str) -> None:
    text = (Path(presets.__file__).parent / dataset / f"{model}.yaml").read_text(encoding="utf-8")
    assert re.match(r"# [^\n]*\(20\d\d\)", text)
    full, quick = (load_config(None, load_preset(dataset, model, quick=quick)) for quick in (False, True))
    assert (full.data.source, full.model.name) == (dataset, model)
    assert quick.train.epochs < full.train.epochs
    assert quick.model.hidden_channels <= full.model.hidden_channels


def test_a_file_overrides_a_preset_and_a_flag_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("train: {epochs: 7, patience: 3}\n")
    config = load_config(file, {"train.patience": 2}, preset=load_preset("actor", "vanilla"))
    assert (config.train.epochs, config.train.patience) == (7, 2)
    assert (config.model.pool_layers, config.model.dropout) == (4, 0.3)


@pytest.mark.parametrize(
    ("dataset", "model", "message"),
    [
        ("cornell", "segment", r"got 'segment'\): there are .*expanded"),
        ("corn", "vanilla", "did you mean 'cornell'"),
    ],
)
def test_what_has_no_preset_is_told(dataset: str, model: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_preset(dataset, model)
