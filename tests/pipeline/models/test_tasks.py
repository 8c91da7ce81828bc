"""Labels and values: their loss and metrics, and models that learn them from a file to predictions."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F

import pipeline
from pipeline.config.loading import Config
from pipeline.ingest.stage import SourceOptions, ingest
from pipeline.models.metrics import Predictions, default_metric, evaluate_predictions
from pipeline.models.tasks import Targets, read_outputs
from pipeline.prediction.inference import predict
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.prepare import open_prepared
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import tiny_config

NAN = float("nan")
NODES = 120

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def test_unknown_labels_do_not_count_in_the_loss_nor_in_its_gradient() -> None:
    outputs = torch.tensor([[0.5, -1.0], [2.0, 0.3], [1.0, 1.0]], requires_grad=True)
    target = torch.tensor([[1.0, NAN], [0.0, 1.0], [NAN, NAN]])
    loss = Targets("labels", target).loss(outputs, target)
    by_hand = (
        F.softplus(torch.tensor(-0.5)) + (F.softplus(torch.tensor(2.0)) + F.softplus(torch.tensor(-0.3))) / 2
    )
    assert torch.allclose(loss, by_hand)
    loss.backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert outputs.grad[2].tolist() == [0, 0]


def test_values_are_learned_in_standard_units_and_read_in_their_own() -> None:
    targets = Targets("values", torch.tensor([[12.0], [NAN], [8.0]]), ((10.0, 2.0),))
    outputs = torch.tensor([[1.0], [5.0], [0.0]])
    assert float(targets.loss(outputs, targets.values)) == pytest.approx(0 + 0 + 1)
    found = targets.predictions(torch.arange(3), outputs)
    assert found.logits.squeeze(1).tolist() == [12, 20, 10]
    assert read_outputs(outputs, "values", targets.scale).squeeze(1).tolist() == [12, 20, 10]


def test_metrics_of_labels_and_values() -> None:
    labels = torch.tensor([[1.0, 0.0], [0.0, NAN], [1.0, 1.0], [0.0, 0.0]])
    perfect = Predictions(torch.arange(4), labels.nan_to_num() * 2 - 1, labels, answer="labels")
    scores = evaluate_predictions(perfect).metrics
    assert set(scores) == {"accuracy", "micro_f1", "macro_f1", "roc_auc", "average_precision"}
    assert set(scores.values()) == {1.0}
    values = torch.tensor([[1.0], [2.0], [3.0], [NAN]])
    off = Predictions(torch.arange(4), values.nan_to_num() + 1, values, answer="values")
    found = evaluate_predictions(off)
    assert found.num_rows == 3
    assert found.metrics == pytest.approx({"mae": 1, "rmse": 1, "r2": 1 - 3 / 2, "spearman": 1})
    assert default_metric(3, "node", "labels") == "roc_auc"
    assert default_metric(1, "node", "values") == "r2"


def write_graph(root: Path) -> tuple[Path, Path, Path]:
    """A ring with chords whose nodes know two labels and two values that follow from their features."""
    draw = np.random.default_rng(0)
    ring = np.arange(NODES)
    ends = np.stack([np.concatenate([ring, ring]), np.concatenate([(ring + 1) % NODES, (ring + 7) % NODES])])
    x = draw.standard_normal((NODES, 3)).astype(np.float32)
    gap = draw.random(NODES) < 0.1
    pq.write_table(pa.table({"a": ends[0], "b": ends[1]}), root / "edges.parquet")
    pq.write_table(pa.table({f"x{i}": x[:, i] for i in range(3)}), root / "nodes.parquet")
    columns = {
        "name": ["a"] * NODES,
        "warm": pa.array((x[:, 0] > 0).astype(np.int64), mask=gap),
        "wet": x[:, 1] > 0,
        "height": pa.array(1000 + 50 * x[:, 0], mask=gap),
        "depth": x[:, 1] - x[:, 2],
    }
    pq.write_table(pa.table(columns), root / "targets.parquet")
    return root / "edges.parquet", root / "nodes.parquet", root / "targets.parquet"


@pytest.fixture(scope="module")
def prepared(
    local_ray: None, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[GraphStore, Config]]:
    """Stores of the same graph with labels and with values."""
    root = tmp_path_factory.mktemp("targets")
    edges, nodes, targets = write_graph(root)
    found = {}
    for answer, columns in (("labels", "warm,wet"), ("values", "height, depth")):
        config = tiny_config(
            root,
            data__source=str(edges),
            data__features=str(nodes),
            data__labels=str(targets),
            data__answer=answer,
            data__label_column=columns,
            data__store=str(root / answer),
            train__epochs=30,
            train__learning_rate=0.03,
            model__dropout=0.0,
        )
        found[answer] = open_prepared(config), config
    return found


@pytest.mark.parametrize("model", ["segment", "sparse", "mlp", "gcn"])
@pytest.mark.parametrize("answer", ["labels", "values"])
def test_models_learn_labels_and_values(
    prepared: dict[str, tuple[GraphStore, Config]], tmp_path: Path, model: str, answer: str
) -> None:
    store, config = prepared[answer]
    config = config.model_copy(update={"model": config.model.model_copy(update={"name": model})})
    open_prepared(config)
    train_worker(TrainJob(config, store.path, tmp_path))
    records, result = read_epochs(tmp_path), read_result(tmp_path)
    assert result is not None
    assert result.metric == {"labels": "roc_auc", "values": "r2"}[answer]
    assert records[-1].train_loss < 0.8 * records[0].train_loss
    if model in ("sparse", "mlp"):  # the others mix a node with its neighbours, which know nothing of it
        assert result.best_val_metric > 0.5


def test_predictions_are_lists_in_the_units_of_the_table(
    prepared: dict[str, tuple[GraphStore, Config]], tmp_path: Path
) -> None:
    store, config = prepared["values"]
    config = config.model_copy(update={"model": config.model.model_copy(update={"name": "mlp"})})
    train_worker(TrainJob(config, store.path, tmp_path))
    done = predict(find_checkpoint(tmp_path), store, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    predicted = np.array(table["prediction"].to_pylist())
    assert predicted.shape == (NODES, 2)
    assert 800 < predicted[:, 0].mean() < 1200
    result = read_result(tmp_path)
    assert result is not None
    assert done.scores["test"]["r2"] == pytest.approx(result.test["r2"], abs=1e-5)
    assert done.scores["test"]["mae"] == pytest.approx(result.test["mae"], rel=1e-4)


@pytest.mark.parametrize(
    ("answer", "column", "message"),
    [
        ("labels", "height", "labels in .* to be 0 or 1, or NaN where unknown"),
        ("values", "size", "to have column 'size'"),
        ("values", "name", "to hold numbers"),
    ],
)
def test_bad_targets_are_named(tmp_path: Path, answer: str, column: str, message: str) -> None:
    edges, nodes, targets = write_graph(tmp_path)
    options = SourceOptions(
        source=str(edges),
        features=nodes,
        labels=targets,
        answer=answer,  # type: ignore[arg-type]
        label_column=column,
    )
    with pytest.raises(UserError, match=message):
        ingest(options, tmp_path / "store")


def test_targets_of_pyg_graphs_come_back(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    for y, answer in (
        (torch.tensor([[0, 1], [1, 1], [0, 0]]), "labels"),
        (torch.tensor([[0.5], [NAN], [2.0]]), "values"),
        (torch.tensor([0.0, 1.0, 1.0]), "classes"),
    ):
        store = pipeline.from_pyg(
            Data(x=torch.eye(3), edge_index=edges, y=y), tmp_path / answer, num_splits=1
        )
        assert store.manifest.answer == answer
        assert torch.equal(pipeline.to_pyg(store).y.nan_to_num(9).double(), y.nan_to_num(9).double())
