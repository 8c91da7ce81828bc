"""What MLflow records about a training, and the registered model that people load."""

import json
import shutil
from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.tracking.runs import start_parent
from pipeline.training.launch import EVALUATION, read_note, train
from pipeline.training.model_card import CARD
from pipeline.training.registration import register_best
from tests.pipeline.conftest import tiny_config

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def test_a_training_is_described_registered_and_loaded(
    tmp_path: Path, tiny_store: GraphStore, tracking_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    config = tiny_config(tmp_path, train__epochs=1, model__propagated_features=0)
    with start_parent("train", config) as parent:
        result = train(config, tiny_store, parent)
    note = read_note(result.checkpoint.parent)
    assert note is not None
    assert note.run_id is not None
    store = TrackingStore(f"sqlite:///{tmp_path / 'mlflow.db'}")
    (given,) = store.client.get_run(note.run_id).inputs.dataset_inputs
    assert (given.dataset.name, given.dataset.digest) == ("minesweeper", tiny_store.digest[:32])
    files = {item.path for item in store.client.list_artifacts(note.run_id)}
    assert {CARD, EVALUATION, "model", "checkpoint"} <= files
    artifacts = Path(store.read_run(note.run_id).artifact_uri.removeprefix("file://"))
    table = json.loads((artifacts / EVALUATION).read_text())
    assert dict(table["data"]) == result.test
    card = (artifacts / CARD).read_text()
    assert f"{result.test_metric:.4f}" in card
    assert "## Limits" in card
    assert "Apache-2.0" in card
    assert (artifacts / "model" / "input_example.json").is_file()

    first = register_best(config, [result], "mines", "champion")
    assert register_best(config, [result], "mines", "champion") == first
    assert (first.version, first.uri) == ("1", "models:/mines@champion")
    version = store.client.get_model_version_by_alias("mines", "champion")
    assert version.run_id == note.run_id
    with pytest.raises(UserError, match="Expected MLflow to register a model"):
        register_best(config, [result], "mines/of/no/name", "champion")

    import mlflow

    monkeypatch.setattr(mlflow.tracking._tracking_service.utils, "_tracking_uri", None)
    mlflow.set_tracking_uri(store.uri)
    try:
        model = mlflow.pyfunc.load_model(first.uri)
        assert len(model.predict({"node": [0, 1, 2]})) == 3
    finally:
        mlflow.set_tracking_uri(None)
