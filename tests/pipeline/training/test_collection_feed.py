"""Graph labels through the loop: resumed equals undisturbed, ranks agree, models learn, predictions agree."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
import torch.multiprocessing as multiprocessing

import pipeline.training.loop
from pipeline.config.settings import SourceOptions
from pipeline.features.arrangement import write_arrangement
from pipeline.ingest.graph_collections import motifs
from pipeline.ingest.published import BY_NAME, raw_file
from pipeline.prediction.inference import predict
from pipeline.prediction.serving import open_answers
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store, open_store
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.tracking.mlflow_server import free_port
from pipeline.tracking.runs import start_parent
from pipeline.training.campaign import summarise
from pipeline.training.checkpoint import find_checkpoint, latest_checkpoint, read_state
from pipeline.training.launch import train
from pipeline.training.prepare import prepare
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import Parameters, tiny_config
from tests.pipeline.ingest.test_graph_collections import ROOT, arranged
from tests.pipeline.training.test_loop import KilledError, _spawned, make_job, run

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def motif_store(tmp_path_factory: pytest.TempPathFactory) -> GraphStore:
    return arranged(tmp_path_factory.mktemp("motifs"), 60)


def kill_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the loop fail after the given number of steps."""
    real, calls = pipeline.training.loop.agree_on_step, 0

    def kill(loss: torch.Tensor, out_of_time: bool) -> tuple[float, bool]:
        nonlocal calls
        calls += 1
        if calls == steps + 1:
            raise KilledError
        return real(loss, out_of_time)

    monkeypatch.setattr(pipeline.training.loop, "agree_on_step", kill)


@pytest.mark.parametrize("name", ["expanded", "gcn"])
def test_resumed_in_mid_epoch_equals_undisturbed(
    motif_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = tiny_config(tmp_path, model__name=name, train__batch_size=10, train__checkpoint_seconds=0)
    whole_job, whole = run(config, motif_store, f"whole-{name}")
    broken = make_job(config, motif_store, f"broken-{name}")
    kill_after(7, monkeypatch)  # five steps an epoch: in the middle of the second
    with pytest.raises(KilledError):
        pipeline.training.loop.train_worker(broken)
    monkeypatch.undo()
    last = latest_checkpoint(broken.directory, "last")
    assert last is not None
    cursor = read_state(last).cursor
    assert cursor is not None
    assert (cursor.epoch, cursor.position) == (1, 19)
    pipeline.training.loop.train_worker(broken)
    resumed = read_result(broken.directory)
    assert resumed is not None
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.test == whole.test
    losses = [[record.train_loss for record in read_epochs(j.directory)] for j in (whole_job, broken)]
    assert losses[0] == losses[1]


def test_one_and_two_workers_agree(tmp_path: Path) -> None:
    """With features that leave no ties: between tied nodes the last bit of a sum would decide."""
    collection, _ = motifs(60)
    noise = np.random.default_rng(0).normal(size=(collection.csr.num_nodes, 3)).astype(np.float32)
    untied = dataclasses.replace(collection, features=noise)
    store = create_store(tmp_path / "store", untied, Parameters())
    write_arrangement(store, 4)
    configs = [
        tiny_config(tmp_path, model__dropout=0.0, train__epochs=2, train__batch_size=9, **kind)
        for kind in (
            {"model__name": "expanded"},
            {"model__name": "sparse"},
        )
    ]
    alone = [run(config, store, f"alone-{number}") for number, config in enumerate(configs)]
    together = [make_job(config, store, f"together-{number}") for number, config in enumerate(configs)]
    multiprocessing.spawn(_spawned, (together, free_port()), nprocs=2)
    for (one_job, one_result), two_job in zip(alone, together, strict=True):
        for one, two in zip(read_epochs(one_job.directory), read_epochs(two_job.directory), strict=True):
            assert one.train_loss == pytest.approx(two.train_loss, abs=1e-5)
            assert one.val_loss == pytest.approx(two.val_loss, abs=1e-5)
            assert one.val_metric == two.val_metric
        two_result = read_result(two_job.directory)
        assert two_result is not None
        assert two_result.test == pytest.approx(one_result.test, abs=1e-9)


def test_too_many_workers_for_a_batch_are_refused(motif_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, model__name="expanded", train__batch_size=1)
    with pytest.raises(UserError, match=r"raise train\.batch_size or lower resources\.workers"):
        pipeline.training.loop.train_worker(make_job(config, motif_store, "crowded"), 0, 2)


@pytest.mark.parametrize("name", ["expanded", "sparse"])
def test_the_family_learns_motifs(motif_store: GraphStore, tmp_path: Path, name: str) -> None:
    config = tiny_config(
        tmp_path, model__name=name, model__dropout=0.0, train__epochs=25, train__batch_size=8
    )
    _, result = run(config, motif_store, f"learned-{name}")
    assert result.metric == "accuracy"
    assert result.best_val_metric > 0.6  # a third by chance
    assert result.test_metric > 0.5


def test_predictions_have_a_row_for_every_graph_and_the_scores_of_training(
    motif_store: GraphStore, tmp_path: Path
) -> None:
    config = tiny_config(tmp_path, model__name="expanded", train__batch_size=8, data__split=3)
    job, result = run(config, motif_store, "predicted")
    out = tmp_path / "predictions.parquet"
    done = predict(find_checkpoint(job.directory), motif_store, out, embeddings=True)
    rows = pq.read_table(out)
    assert (done.rows, done.num_rows) == ("graphs", 60)
    assert rows.column("id").to_pylist() == list(range(60))
    assert rows.column("label").to_pylist() == motif_store.labels().tolist()
    prediction, label = (rows.column(name).to_numpy() for name in ("prediction", "label"))
    test = rows_of_part(motif_store.split(3), "test")
    assert float((prediction == label)[test].mean()) == pytest.approx(result.test["accuracy"])
    assert done.scores["test"] == pytest.approx(result.test)
    assert len(rows.column("embedding")[0].as_py()) == done.embedding_channels


def test_the_gin_protocol_trains_on_nine_folds_and_selects_on_the_tenth(
    motif_store: GraphStore, tmp_path: Path
) -> None:
    settings = {"model__name": "gcn", "train__batch_size": 60, "train__epochs": 4}
    honest_job, honest = run(tiny_config(tmp_path, **settings), motif_store, "honest")
    gin_job, gin = run(tiny_config(tmp_path, data__protocol="gin", **settings), motif_store, "gin")
    assert (honest.protocol, gin.protocol) == ("holdout", "gin")
    assert gin.test_metric == gin.best_val_metric
    assert honest.weights_sha256 != gin.weights_sha256
    # Tested on the same fold, so that only training and selection differ.
    out = [tmp_path / f"{name}.parquet" for name in ("honest", "gin")]
    for job, path in zip((honest_job, gin_job), out, strict=True):
        predict(find_checkpoint(job.directory), motif_store, path)
    test = rows_of_part(motif_store.split(0), "test")
    for result, path in zip((honest, gin), out, strict=True):
        rows = pq.read_table(path)
        hit = rows.column("prediction").to_numpy() == rows.column("label").to_numpy()
        assert float(hit[test].mean()) == pytest.approx(result.test_metric)


def test_folds_of_the_gin_protocol_are_scored_after_one_epoch(
    motif_store: GraphStore, tmp_path: Path
) -> None:
    settings = {"model__name": "gcn", "train__batch_size": 60, "train__epochs": 6, "data__protocol": "gin"}
    done = [
        run(tiny_config(tmp_path, data__split=fold, **settings), motif_store, f"fold-{fold}")
        for fold in range(3)
    ]
    (summary,) = summarise([result for _, result in done])
    curves = np.array([[record.val_metric for record in read_epochs(job.directory)] for job, _ in done])
    assert summary.protocol == "gin"
    assert summary.mean == pytest.approx(curves.mean(0).max())
    assert summary.mean <= np.mean([result.test_metric for _, result in done])


def test_mlflow_serves_graphs_by_their_numbers(
    motif_store: GraphStore, tmp_path: Path, tracking_database: Path
) -> None:
    import mlflow

    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    config = tiny_config(tmp_path, model__name="expanded", train__epochs=1, tracking__uri=uri)
    with start_parent("train", config) as parent:
        result = train(config, motif_store, parent)
    out = tmp_path / "predictions.parquet"
    predict(result.checkpoint, motif_store, out)
    expected = np.array(pq.read_table(out).column("probabilities").to_pylist())
    model = mlflow.pyfunc.load_model(str(result.checkpoint.parent / "model"))
    answers = model.predict(pd.DataFrame({"graph": [59, 4]}))
    assert answers["graph"].tolist() == [59, 4]
    np.testing.assert_allclose(answers["probability_2"], expected[[59, 4], 2], atol=1e-6)
    with pytest.raises(UserError, match=r"Expected graph ids from 0 to 59 \(got 60\)"):
        open_answers(result.checkpoint)([60], None)


def test_mutag_is_learned_beyond_its_majority_class(tmp_path: Path) -> None:
    if raw_file(BY_NAME["mutag"], ROOT) is None:
        pytest.skip("the raw files of mutag are not on this machine")
    config = tiny_config(
        tmp_path,
        model__name="expanded",
        model__hidden_channels=16,
        model__smoothness=6,
        train__epochs=15,
        train__batch_size=16,
        train__learning_rate=5e-3,
    )
    prepared = prepare(config, SourceOptions(source="mutag", data_root=ROOT))
    store = open_store(prepared.store)
    _, result = run(config, store, "mutag")
    majority = np.bincount(store.labels()).max() / store.num_rows
    assert result.best_val_metric > majority
    assert result.test["roc_auc"] > 0.75
