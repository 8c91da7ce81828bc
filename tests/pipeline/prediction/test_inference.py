"""Predictions: a row for every node, the same however they are computed, and only for stores that fit."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import pipeline.prediction.inference
from pipeline.ingest.generators import minesweeper
from pipeline.prediction.inference import open_model, predict
from pipeline.runtime.errors import UserError
from pipeline.segments.stage import write_segments
from pipeline.store.access import create_store, open_store
from pipeline.store.arrays import SPLIT_NAMES
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import find_checkpoint, read_origin
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.results import read_result
from tests.pipeline.conftest import SIDE, Parameters, prepare_tiny, tiny_config

MODELS = [
    {"model__name": "segment"},
    {"model__name": "segment", "model__positions": "explicit"},
    {"model__name": "sparse"},
    {"model__name": "expanded", "model__positions": "implicit"},
]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def train_tiny(store: GraphStore, **settings: object) -> Path:
    """Directory of a training of one epoch."""
    directory = store.path.parent / "training"
    directory.mkdir()
    config = tiny_config(store.path.parent, **{"train__epochs": 1, **settings})
    train_worker(TrainJob(config, store.path, directory))
    return directory


@pytest.mark.parametrize(
    "settings", MODELS, ids=["segment", "segment-explicit", "sparse", "expanded-implicit"]
)
def test_a_row_for_every_node_in_order(tiny_store: GraphStore, settings: dict[str, object]) -> None:
    directory = train_tiny(tiny_store, **settings)
    checkpoint = find_checkpoint(directory)
    out = tiny_store.path.parent / "here" / "predictions.parquet"
    done = predict(checkpoint, tiny_store, out, embeddings=True)

    rows = pq.read_table(out)
    assert rows.column("id").to_pylist() == list(range(SIDE * SIDE))
    names = [SPLIT_NAMES[part] if part >= 0 else None for part in tiny_store.split(0).tolist()]
    assert rows.column("split").to_pylist() == names
    assert rows.column("label").to_pylist() == tiny_store.labels().tolist()
    probabilities = np.array(rows.column("probabilities").to_pylist())
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    assert rows.column("prediction").to_pylist() == probabilities.argmax(1).tolist()
    model = open_model(checkpoint)
    embeddings = torch.tensor(rows.column("embedding").to_pylist())
    again = model.out(embeddings).softmax(1).detach().numpy()
    np.testing.assert_allclose(again, probabilities, atol=1e-6)
    assert done.embedding_channels == embeddings.size(1) == 16

    result = read_result(directory)
    assert result is not None
    assert done.scores["test"] == pytest.approx(result.test, abs=1e-6)
    assert sorted(path.name for path in out.parent.iterdir()) == ["predictions.parquet"]


@pytest.mark.parametrize("settings", MODELS[:2], ids=["shards", "memory"])
def test_ray_and_this_process_agree(
    tiny_store: GraphStore, local_ray: None, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    checkpoint = find_checkpoint(train_tiny(tiny_store, **settings))
    monkeypatch.setattr(pipeline.prediction.inference, "CHUNK_ROWS", 25)
    tables = []
    for parallel in (False, True):
        out = tiny_store.path.parent / f"{parallel}.parquet"
        predict(checkpoint, tiny_store, out, embeddings=True, parallel=parallel)
        tables.append(pq.read_table(out))
    assert tables[0].equals(tables[1])
    assert "embedding" in tables[0].column_names


def test_nodes_keep_their_own_names_and_those_in_no_part_count(tmp_path: Path) -> None:
    names = [f"cell {number}" for number in range(SIDE * SIDE)]
    graph = dataclasses.replace(minesweeper(SIDE, num_splits=2), ids=pa.array(names))
    graph.splits[:, :10] = -1
    graph.labels[5] = -1
    store = prepare_tiny(create_store(tmp_path / "store", graph, Parameters()))
    out = tmp_path / "predictions.parquet"
    predict(find_checkpoint(train_tiny(store)), store, out)
    rows = pq.read_table(out)
    assert rows.column_names == ["id", "prediction", "label", "split", "probabilities"]
    assert rows.column("id").to_pylist() == names
    assert rows.column("split").to_pylist()[:10] == [None] * 10
    assert rows.column("label").to_pylist()[5] is None
    assert rows.column("probabilities").null_count == 0


def test_a_store_that_does_not_fit_is_refused_in_one_line(tiny_store: GraphStore, tmp_path: Path) -> None:
    checkpoint = find_checkpoint(train_tiny(tiny_store))
    graph = minesweeper(SIDE, seed=1, num_splits=2)
    other = prepare_tiny(create_store(tmp_path / "other", graph, Parameters(side=1)))
    wide = dataclasses.replace(graph, features=np.tile(graph.features, 2))
    wider = create_store(tmp_path / "wide", wide, Parameters(side=2))
    richer = create_store(tmp_path / "rich", dataclasses.replace(graph, num_classes=3), Parameters(side=3))
    out = tmp_path / "predictions.parquet"
    features = tiny_store.manifest.num_features
    for store, reason in (
        (other, "was trained on, minesweeper with digest .*--other-graph"),
        (wider, rf"num_features={features} \(got num_features={2 * features}\)"),
        (richer, r"num_classes=2 \(got num_classes=3\)"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            predict(checkpoint, store, out)
        assert "\n" not in str(caught.value)
    assert not out.exists()

    predict(checkpoint, other, out, other_graph=True)
    assert pq.read_table(out).num_rows == SIDE * SIDE


def test_segments_of_another_shape_are_refused(tiny_store: GraphStore, tmp_path: Path) -> None:
    checkpoint = find_checkpoint(train_tiny(tiny_store))
    write_segments(tiny_store, tiny_config(tmp_path, segments__length=6), replace=True)
    with pytest.raises(UserError, match=r"heads and length 5 \(got 2 and 6\)"):
        predict(checkpoint, tiny_store, tmp_path / "predictions.parquet", other_graph=True)


def test_stages_that_the_model_does_not_read_may_change(tiny_store: GraphStore, tmp_path: Path) -> None:
    checkpoint = find_checkpoint(train_tiny(tiny_store))
    settings = {"segments__length": 6, "data__split": 1}
    write_segments(tiny_store, tiny_config(tmp_path, **settings), replace=True)
    assert read_origin(checkpoint).store == tiny_store.path
    predict(checkpoint, open_store(tiny_store.path), tmp_path / "predictions.parquet")


def test_a_failure_leaves_nothing_behind(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = find_checkpoint(train_tiny(tiny_store))
    out = tmp_path / "there" / "predictions.parquet"

    def fail(*arguments: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(pipeline.prediction.inference, "score_parts", lambda *arguments: {})
    monkeypatch.setattr("pipeline.prediction.node_tables.rows_table", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        predict(checkpoint, tiny_store, out)
    assert list(out.parent.iterdir()) == []
