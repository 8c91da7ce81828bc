"""What a job is sent: three packages and a configuration, and resources that match it."""

from pathlib import Path

import pytest

from pipeline.cluster.submission import cluster_overrides, describe, driver_resources, package
from pipeline.config.loading import ConfigError, load_config


def test_the_package_holds_sources_only() -> None:
    with package() as directory:
        names = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
        assert {"jobs/train.py", "pipeline/comparison/assets/report.css", "cocn/py.typed"} <= names
        assert {Path(name).suffix for name in names} <= {".py", ".css", ".js", ".j2", ".typed", ".yaml"}
        assert {Path(name).parts[0] for name in names} == {"cocn", "pipeline", "jobs"}
    assert not directory.exists()


@pytest.mark.parametrize(
    ("model", "workers", "stage", "expected"),
    [
        ("segment", 1, "train", (2.0, 1.0)),
        ("segment", 4, "train", (0.0, 0.0)),
        ("segment", "2..4", "train", (0.0, 0.0)),
        ("sparse", 4, "train", (0.0, 0.0)),
        ("gcn", 4, "train", (2.0, 1.0)),
        ("segment", 1, "preprocess", (0.0, 0.0)),
    ],
)
def test_a_driver_that_trains_itself_asks_for_what_a_worker_gets(
    model: str, workers: int | str, stage: str, expected: tuple[float, float]
) -> None:
    overrides = {
        "model.name": model,
        "resources.workers": workers,
        "resources.cpus_per_worker": 2,
        "resources.gpus_per_worker": 1,
    }
    assert driver_resources(stage, load_config(None, overrides)) == expected  # type: ignore[arg-type]


def test_a_cluster_file_holds_no_science(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("resources: {workers: 8}\noutput: /shared/runs\ndata: {store: /shared/store}\n")
    assert cluster_overrides(path) == {
        "resources.workers": 8,
        "output": "/shared/runs",
        "data.store": "/shared/store",
    }
    path.write_text("train: {epochs: 3}")
    with pytest.raises(ConfigError, match=r"got 'train\.epochs'"):
        cluster_overrides(path)


def test_metadata_names_no_address_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2hunter2")
    config = load_config(None, {"tracking.uri": "http://me:hunter2hunter2@host:5000"})
    told = describe("train", config)
    assert "hunter2hunter2" not in str(told)
    assert (told["cocn.stage"], told["cocn.model"]) == ("train", "segment")
