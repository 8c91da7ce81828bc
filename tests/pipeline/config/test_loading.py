"""Configuration: defaults, files, flags, and errors that say what to do."""

from pathlib import Path

import pytest

from pipeline.config.loading import Config, ConfigError, load_config, parse_assignments, to_yaml, valid_keys
from pipeline.config.settings import Section


def written(directory: Path, text: str) -> Path:
    path = directory / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_no_file() -> None:
    assert load_config() == Config()


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, "# nothing\n")) == Config()


def test_flags_win_over_the_file_and_none_is_a_flag_not_given(tmp_path: Path) -> None:
    path = written(tmp_path, "train: {epochs: 7, batch_size: 32}\n")
    config = load_config(path, {"train.epochs": 9, "train.batch_size": None})
    assert (config.train.epochs, config.train.batch_size) == (9, 32)


def test_later_files_win_and_errors_name_the_file_at_fault(tmp_path: Path) -> None:
    model, cluster = tmp_path / "model.yaml", tmp_path / "cluster.yaml"
    model.write_text("train: {epochs: 7, batch_size: 32}\nresources: {workers: 1}\n")
    cluster.write_text("resources: {workers: 2..8}\noutput: /shared/runs\n")
    config = load_config([model, cluster], {"train.epochs": 9})
    assert (config.train.epochs, config.train.batch_size) == (9, 32)
    assert (config.resources.workers, config.output) == ("2..8", Path("/shared/runs"))
    model.write_text("train: {epochs: none}\n")
    with pytest.raises(ConfigError, match=r"model\.yaml: Expected 'train.epochs' to be a valid integer"):
        load_config([model, cluster])
    cluster.write_text("resources: {worker: 2}\n")
    with pytest.raises(ConfigError, match=r"cluster\.yaml: unknown key 'resources.worker'"):
        load_config([model, cluster])


def test_resolved_configuration_reads_back(tmp_path: Path) -> None:
    config = load_config(None, {"model.inception_kernels": (3, 5), "output": tmp_path, "train.clip": 0.0})
    assert load_config(written(tmp_path, to_yaml(config))) == config


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("train: {epoch: 3}", "unknown key 'train.epoch'; did you mean 'train.epochs'?"),
        ("epochs: 3", "unknown key 'epochs'; did you mean 'train.epochs'?"),
        ("trian: {epochs: 3}", "unknown key 'trian'; did you mean 'train'?"),
        ("model: {kernelsize: 3}", "unknown key 'model.kernelsize'; did you mean 'model.kernel_size'?"),
        ("train: {epochs: many}", "Expected 'train.epochs' to be a valid integer"),
        ("train: {epochs: 0}", "Expected 'train.epochs' to be greater than or equal to 1 (got 0)"),
        ("model: {name: sparce}", "Expected 'model.name' to be 'vanilla', 'expanded', 'sparse', 'segment', "),
        ("train: 3", "Expected 'train' to be a valid dictionary or instance of TrainConfig (got 3)"),
        ("- train", "Expected keys and values at the top (got a list)"),
        ("train: {epochs: 3", "line 1: not valid YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(tmp_path: Path, text: str, line: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert line in message
    assert "\n" not in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot read the file \(No such file"):
        load_config(tmp_path / "absent.yaml")


def test_a_mistaken_flag_is_told_as_a_flag(tmp_path: Path) -> None:
    path = written(tmp_path, "train: {epochs: 3}")
    with pytest.raises(ConfigError, match=r"^command line: Expected 'train\.epochs'"):
        load_config(path, {"train.epochs": "x"})
    with pytest.raises(ConfigError, match=r"^command line: unknown key 'train\.epoch'"):
        load_config(path, {"train.epoch": 1})


def test_yaml_never_builds_objects(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(written(tmp_path, "train: !!python/object/apply:os.system ['true']"))


def test_assignments_are_read_as_yaml() -> None:
    given = parse_assignments(["train.epochs=3", "model.inception_kernels=[3, 5]", "data.source=cora"])
    config = load_config(None, given)
    assert config.train.epochs == 3
    assert config.model.inception_kernels == (3, 5)
    assert config.data.source == "cora"


@pytest.mark.parametrize("text", ["train.epochs", "=3"])
def test_an_assignment_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Expected '--set' to be KEY=VALUE"):
        parse_assignments([text])


def test_every_key_is_explained() -> None:
    sections: list[type[Section]] = [Config]
    for section in sections:
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name} has no sentence under it"
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                sections.append(field.annotation)
    assert "train.epochs" in set(valid_keys())


def test_values_cannot_be_changed_after_reading() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().train.epochs = 3  # type: ignore[misc]
