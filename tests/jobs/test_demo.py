"""The demo, as a person runs it, on a smaller board: every stage, two models, one comparison."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.store.access import open_store
from pipeline.tracking.mlflow_store import TrackingStore


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> "tuple[Path, subprocess.CompletedProcess[str]]":
    output = tmp_path_factory.mktemp("demo") / "a path with spaces"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-m", "jobs.cli", "demo", "--side", "24", "--output", str(output), "--json"]
    done = subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=500, check=False)
    return output, done


def test_it_succeeds_and_ends_with_one_json_object(
    demo: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    output, done = demo
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert [training["model"] for training in result["trainings"]] == ["segment", "sparse"]
    assert Path(result["report"]) == output.absolute() / "report.html"
    assert "segment" in Path(result["report"]).read_text(encoding="utf-8")
    assert result["baselines"][0]["name"] == "majority class"


def test_both_models_beat_what_features_alone_reach(
    demo: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    result = json.loads(demo[1].stdout.splitlines()[-1])
    to_beat = max(line["value"] for line in result["baselines"])
    assert min(training["test_metric"] for training in result["trainings"]) > to_beat + 0.05


def test_mlflow_holds_a_parent_with_a_segment_and_a_sparse_child(
    demo: "tuple[Path, subprocess.CompletedProcess[str]]",
) -> None:
    output, done = demo
    result = json.loads(done.stdout.splitlines()[-1])
    store = TrackingStore(result["tracking_uri"])
    children = store.read_runs("demo", result["parent_run"])
    assert {run.tags["cocn.model"] for run in children} == {"segment", "sparse"}
    assert {run.status for run in children} == {"FINISHED"}
    assert store.read_run(result["parent_run"]).status == "FINISHED"
    assert all("test_metric" in run.metrics for run in children)
    opened = open_store(Path(result["store"]))
    opened.verify()
    assert opened.num_nodes == 24 * 24
    assert output in opened.path.parents
