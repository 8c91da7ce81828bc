"""Feeds of opponents: rows, and samples of every neighbour, answer as the whole graph does; all resume."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from pipeline.config.loading import Config
from pipeline.features.selection import write_blocks
from pipeline.ingest.stage import ingest, options_from
from pipeline.models.networks import Inputs, build_model
from pipeline.models.opponents import OPPONENTS, Opponent
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.prediction.inference import predict
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.feeds import open_feed
from pipeline.training.loop import TrainJob, train_worker
from pipeline.training.needs import resolve_needs
from pipeline.training.neighbour_feed import NeighbourFeed, samples_neighbours
from pipeline.training.opponent_inputs import read_opponent_graph, read_rows
from pipeline.training.protocol import Feed
from pipeline.training.results import read_epochs, read_result
from pipeline.training.row_feed import RowFeed
from pipeline.training.sampling import NeighbourSampler
from pipeline.training.whole_graph_feed import WholeGraphFeed
from tests.pipeline.conftest import tiny_config

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
CPU = torch.device("cpu")
FEEDS = {"rows": RowFeed, "graph": WholeGraphFeed, "samples": WholeGraphFeed}


def configure(name: str, output: Path, **settings: object) -> Config:
    return tiny_config(output, model__name=name, train__batch_size=16, **settings)


def open_opponent(store: GraphStore, config: Config) -> tuple[Opponent, Feed]:
    torch.manual_seed(0)
    write_blocks(store, resolve_needs(config, store).all_blocks)
    model = build_model(config.model, config.segments, Inputs.of(store, config))
    assert isinstance(model, Opponent)
    return model, open_feed(store, config, model, 0, 1, CPU)


@pytest.mark.parametrize("name", OPPONENTS)
def test_the_feed_is_the_one_of_the_registry_and_answers_as_the_whole_graph(
    name: str, tiny_store: GraphStore, tmp_path: Path
) -> None:
    model, feed = open_opponent(tiny_store, configure(name, tmp_path))
    assert isinstance(feed, FEEDS[OPPONENTS[name].reads])
    feed.start_epoch(0)
    with torch.inference_mode():
        found = feed.predict(model.eval(), "val")
        if name == "sign":  # which reads blocks of the store
            assert isinstance(model, RowOpponent)
            everyone = model(read_rows(tiny_store, model).take(np.arange(tiny_store.num_nodes), CPU))
        else:
            everyone = model(read_opponent_graph(tiny_store, CPU))
    torch.testing.assert_close(found.logits, everyone[found.row], rtol=1e-4, atol=1e-5)


def test_row_batches_cover_the_training_rows_once(tiny_store: GraphStore, tmp_path: Path) -> None:
    _, feed = open_opponent(tiny_store, configure("mlp", tmp_path))
    seen = []
    for epoch in range(2):
        feed.start_epoch(epoch)
        seen.append(torch.cat([share.batch.blocks[0] for share in feed.shares()]))  # type: ignore[union-attr]
        assert feed.epoch_ended
    rows = np.flatnonzero(tiny_store.split(0) == 0)
    assert len(seen[0]) == rows.size
    assert not torch.equal(seen[0], seen[1])
    torch.testing.assert_close(seen[0].sum(0), torch.from_numpy(tiny_store.features()[rows].sum(0)))


def test_with_every_neighbour_samples_answer_as_the_whole_graph(
    tiny_store: GraphStore, tmp_path: Path
) -> None:
    config = configure("sage", tmp_path, model__neighbours=100, model__opponent__sampling="always")
    model, feed = open_opponent(tiny_store, config)
    assert isinstance(feed, NeighbourFeed)
    with torch.inference_mode():
        whole = feed.predict(model.eval(), "train")
    expected = torch.nn.functional.cross_entropy(whole.logits, whole.label, reduction="sum")
    feed.start_epoch(0)
    shares = list(feed.shares())
    assert len(shares) == feed.steps_per_epoch > 1
    assert sum(share.rows for share in shares) == whole.label.numel()
    total = sum(feed.losses(model, share, None) for share in shares)
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)


def test_directions_of_the_source_are_read(tmp_path: Path) -> None:
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    features, labels = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    np.savez(tmp_path / "ring.npz", edges=edges, features=features, labels=labels)
    config = configure("dirgnn", tmp_path, data__source=str(tmp_path / "ring.npz"))
    store = ingest(options_from(config.data), tmp_path / "ring").store
    adjacency = read_opponent_graph(store, CPU).adjacency.toarray()
    assert (adjacency == np.roll(np.eye(4), 1, axis=1)).all()
    assert Inputs.of(store, config).directed


def test_samples_are_neighbours_none_twice_and_repeat_with_their_seed(tiny_store: GraphStore) -> None:
    csr = tiny_store.undirected_csr()
    sampler = NeighbourSampler(csr, [3, 2])
    seeds = np.array([5, 60, 143])
    one, again, other = (sampler.sample(seeds, number) for number in (7, 7, 8))
    assert (one.nodes[:3] == seeds).all()
    assert len(set(one.nodes.tolist())) == one.nodes.size
    assert one.adjacency.max() == 1.0
    counts = np.diff(one.adjacency.indptr)
    assert counts[:3].tolist() == [3, 3, 3]
    assert counts[3:].max() == 2
    for row, column in zip(*one.adjacency.nonzero(), strict=True):
        node = one.nodes[row]
        assert one.nodes[column] in csr.indices[csr.indptr[node] : csr.indptr[node + 1]]
    assert (one.nodes == again.nodes).all()
    assert not np.array_equal(one.nodes, other.nodes)


def test_large_graphs_are_sampled_unless_told_otherwise(tmp_path: Path) -> None:
    auto, never = (
        configure("sage", tmp_path, model__opponent__sampling=choice) for choice in ("auto", "never")
    )
    assert not samples_neighbours(auto, 1000)
    assert samples_neighbours(auto, 1_000_000)
    assert not samples_neighbours(never, 1_000_000)
    assert not samples_neighbours(configure("gcn", tmp_path), 1_000_000)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sign", {}),
        ("linkx", {}),
        ("polynormer", {"model__opponent__local_epochs": 4}),
        ("sage", {"model__opponent__sampling": "always", "model__neighbours": 2}),
    ],
)
def test_resumed_equals_uninterrupted_and_predict_repeats_the_test_score(
    name: str, settings: dict[str, object], tiny_store: GraphStore, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    digests = []
    for stops in ([6], [3, 6]):
        directory = tmp_path / f"{name}-{len(stops)}"
        directory.mkdir()
        for epochs in stops:
            config = configure(name, tmp_path, train__epochs=epochs, **settings)
            write_blocks(tiny_store, resolve_needs(config, tiny_store).all_blocks)
            train_worker(TrainJob(config, tiny_store.path, directory))
        result = read_result(directory)
        assert result is not None
        digests.append((result.weights_sha256, [record.train_loss for record in read_epochs(directory)]))
    assert digests[0] == digests[1]
    out = tmp_path / "predictions.parquet"
    done = predict(find_checkpoint(directory), tiny_store, out, embeddings=True)
    assert done.scores["test"]["roc_auc"] == pytest.approx(result.test_metric)
    assert done.embedding_channels == 8
    assert pq.read_table(out).num_rows == tiny_store.num_nodes
