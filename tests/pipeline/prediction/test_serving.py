"""A logged model, loaded back by MLflow: without pickle, and with the answers of `cocn predict`."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.prediction.inference import predict
from pipeline.prediction.serving import open_answers
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.runs import start_parent
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.launch import train
from tests.pipeline.conftest import tiny_config


def test_mlflow_serves_what_was_trained(
    tiny_store: GraphStore, tmp_path: Path, tracking_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    torch.set_num_threads(1)
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    config = tiny_config(tmp_path, train__epochs=2, tracking__uri=uri)
    with start_parent("train", config) as parent:
        result = train(config, tiny_store, parent)
    (child,) = [run for run in _runs(uri) if "cocn.model" in run.data.tags]
    out = tmp_path / "predictions.parquet"
    predict(find_checkpoint(result.checkpoint), tiny_store, out)
    expected = np.array(pq.read_table(out).column("probabilities").to_pylist())

    # The copy in the tracking store is enough, without the directory of the training.
    shutil.rmtree(tmp_path / "trainings")
    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    mlflow.set_tracking_uri(uri)
    model = mlflow.pyfunc.load_model(f"runs:/{child.info.run_id}/model")
    nodes = pd.DataFrame({"node": np.arange(tiny_store.num_nodes)})
    answers = model.predict(nodes, params={"store": str(tiny_store.path)})
    np.testing.assert_array_equal(answers["prediction"], expected.argmax(1))
    np.testing.assert_allclose(answers[["probability_0", "probability_1"]], expected, atol=1e-6)

    some = model.predict(nodes.iloc[[7, 3]])
    np.testing.assert_allclose(some["probability_1"], expected[[7, 3], 1], atol=1e-6)
    artifacts = [path.suffix for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert ".safetensors" in artifacts
    assert not {".pkl", ".pickle", ".pt", ".pth", ".bin"} & set(artifacts)

    copy = Path(mlflow.artifacts.download_artifacts(f"runs:/{child.info.run_id}/checkpoint"))
    with pytest.raises(UserError, match=r"Expected node ids from 0 to 143 \(got 144\)"):
        open_answers(copy)([0, 144], None)


def _runs(uri: str) -> list[object]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("cocn")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))
