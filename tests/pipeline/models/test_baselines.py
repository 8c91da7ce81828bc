"""Baselines: they over-fit a tiny board, do not mind how nodes are numbered, and stand in the comparison."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import cocn
from pipeline.comparison.history import select_trainings
from pipeline.comparison.statistics import compare
from pipeline.config.settings import ModelConfig
from pipeline.models.baselines import BASELINES, Baseline, edge_index
from pipeline.models.networks import FAMILY, MODELS
from pipeline.prediction.inference import predict
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_store import existing_store
from pipeline.training.campaign import run_campaign
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.results import read_epochs
from tests.pipeline.conftest import tiny_config

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3], [1, 0, 2, 1, 3, 2, 3, 0]])


def baseline(name: str, num_nodes: int = 4) -> Baseline:
    torch.manual_seed(0)
    settings = ModelConfig(name=name, hidden_channels=8, heads=2, dropout=0.0)  # type: ignore[arg-type]
    return Baseline(settings, num_nodes, 3, 2).eval()


def test_all_over_fit_and_are_compared(
    tiny_store: GraphStore, tmp_path: Path, tracking_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    config = tiny_config(
        tmp_path,
        model__hidden_channels=32,
        model__dropout=0.0,
        train__epochs=80,
        train__learning_rate=0.02,
        train__validate_every=20,
        resources__workers=2,
    )
    campaign = run_campaign(config, tiny_store, BASELINES, [0], [0])
    assert [summary.model for summary in campaign.summaries] == list(BASELINES)
    for result in campaign.trainings:
        losses = [record.train_loss for record in read_epochs(result.checkpoint.parent)]
        # The board's own features say little about a cell's neighbours, so a perceptron improves least.
        assert losses[-1] < (0.99 if result.model == "mlp" else 0.9) * losses[0], result.model

    compared = compare(select_trainings(existing_store(None, tmp_path), "cocn"))
    assert {row.model for row in compared.rows} == set(BASELINES)
    scores = {row.model: row.mean for row in compared.rows}
    assert scores["sage"] > scores["mlp"]

    linkx = next(result for result in campaign.trainings if result.model == "linkx")
    out = tmp_path / "predictions.parquet"
    done = predict(find_checkpoint(linkx.checkpoint), tiny_store, out, embeddings=True)
    assert done.scores["test"]["roc_auc"] == pytest.approx(linkx.test_metric)
    assert done.embedding_channels == 32
    assert pq.read_table(out).num_rows == tiny_store.num_nodes


@pytest.mark.parametrize("name", BASELINES)
def test_numbering_does_not_matter(name: str) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([2, 0, 3, 1])
    place = order.argsort()
    model = baseline(name)
    plain = model(cocn.prepare(x, EDGES))
    renumbered = model(cocn.prepare(x[order], place[EDGES]))
    torch.testing.assert_close(renumbered, plain[order])


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "linkx"])
def test_graphs_of_a_batch_do_not_touch(name: str) -> None:
    generator = torch.Generator().manual_seed(2)
    one, two = torch.randn(4, 3, generator=generator), torch.randn(3, 3, generator=generator)
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    model = baseline(name)
    together = cocn.prepare(
        torch.cat([one, two]), torch.cat([EDGES, path + 4], dim=1), batch=torch.tensor([0] * 4 + [1] * 3)
    )
    apart = torch.cat([model(cocn.prepare(one, EDGES)), model(cocn.prepare(two, path))])
    torch.testing.assert_close(model(together), apart)


def test_edges_are_those_of_the_graph() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    graph = cocn.prepare(x, EDGES)
    found = {tuple(edge) for edge in graph.arrangement[edge_index(graph)].T.tolist()}
    assert found == {tuple(edge) for edge in EDGES.T.tolist()}


def test_a_graph_without_features_reads_ones() -> None:
    model = Baseline(ModelConfig(name="gcn", hidden_channels=8), 4, 0, 2)
    assert model(cocn.prepare(None, EDGES, num_nodes=4)).shape == (4, 2)


def test_channels_that_heads_cannot_share_are_one_line() -> None:
    with pytest.raises(UserError, match=r"multiple of the 3 heads of 'gat' \(got 8\)"):
        Baseline(ModelConfig(name="gat", hidden_channels=8, heads=3), 4, 3, 2)


def test_every_name_of_the_configuration_can_be_trained() -> None:
    assert set(MODELS) == set(FAMILY) | set(BASELINES)
    assert np.all([ModelConfig(name=name).name == name for name in MODELS])  # type: ignore[arg-type]
