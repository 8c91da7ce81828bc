"""Where settings come from, and the schema that editors check them by."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from pipeline.config.explanation import config_schema, explain_config
from pipeline.config.loading import Config, ConfigError, to_yaml, valid_keys
from pipeline.config.nested_keys import section_of

FILES = sorted((Path(__file__).parents[3] / "infra").glob("*.yaml"))


def origins(*arguments: object, **settings: object) -> dict[str, tuple[object, str]]:
    return {found.key: (found.value, found.origin) for found in explain_config(*arguments, **settings)}  # type: ignore[arg-type]


def test_every_setting_says_where_it_came_from(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("train: {epochs: 4, batch_size: 9}\n")
    two.write_text("train: {epochs: 5}\n")
    found = origins(
        [one, two], {"model.heads": 3, "train.seed": None}, preset={"train.epochs": 7, "model.tau": 0.5}
    )
    assert found["train.epochs"] == (5, str(two))
    assert found["train.batch_size"] == (9, str(one))
    assert found["model.heads"] == (3, "command line")
    assert found["model.tau"] == (0.5, "preset")
    assert found["train.seed"] == (0, "default")
    leaves = {key for key in valid_keys() if not any(other.startswith(f"{key}.") for other in valid_keys())}
    assert set(found) == leaves


def test_passwords_are_hidden() -> None:
    value, _ = origins((), {"tracking.uri": "postgresql://me:secret@host/db"})["tracking.uri"]
    assert "secret" not in str(value)


def test_a_bad_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("train: {epochs: none}\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml: Expected 'train\.epochs'"):
        explain_config([file])


def test_the_schema_takes_the_default_configuration_and_refuses_what_loading_refuses() -> None:
    check = jsonschema.Draft202012Validator(config_schema())
    assert check.is_valid(yaml.safe_load(to_yaml(Config())))
    assert check.is_valid({"resources": {"workers": "2..8"}, "data": {"store": "s3://bucket/store"}})
    for bad in (
        {"trian": {}},
        {"train": {"epochs": 0}},
        {"model": {"name": "transformer"}},
        {"resources": {"workers": "many"}},
    ):
        assert not check.is_valid(bad), bad


@pytest.mark.parametrize(
    "file", [path for path in FILES if path.name == "model.yaml"], ids=lambda path: path.name
)
def test_shipped_files_fit_the_schema(file: Path) -> None:
    jsonschema.Draft202012Validator(config_schema()).validate(yaml.safe_load(file.read_text()))


def test_every_setting_has_a_sentence() -> None:
    schema = config_schema()
    sections = schema["$defs"]
    assert isinstance(sections, dict)
    for name, field in Config.model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            continue
        properties = sections[section.__name__]["properties"]  # type: ignore[index, call-overload]
        assert all(entry.get("description") for entry in properties.values()), name
