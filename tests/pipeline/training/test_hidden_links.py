"""Links: what is hidden stays hidden, metrics recomputed by hand, the loop resumes and distributes."""

import dataclasses
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import torch.multiprocessing as multiprocessing
from sklearn import metrics

import pipeline.training.loop
from pipeline.config.loading import Config
from pipeline.features.arrangement import write_arrangement
from pipeline.ingest.graph_collections import motifs
from pipeline.models.metrics import evaluate_links, evaluate_predictions
from pipeline.models.networks import Inputs, build_model
from pipeline.prediction.inference import predict
from pipeline.prediction.serving import open_answers
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store
from pipeline.store.arrays import CollectionArrays, GraphArrays, Pairs
from pipeline.store.cleaning import clean_edges, edge_sources
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.tracking.mlflow_server import free_port
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.feeds import open_feed
from pipeline.training.hidden_links import LinkParameters, draw_links, draw_pairs, read_links, write_links
from pipeline.training.link_feed import LinkFeed
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import Parameters, tiny_config
from tests.pipeline.training.test_collection_feed import kill_after
from tests.pipeline.training.test_loop import KilledError, _spawned, make_job, run

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

NODES = 90


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def communities() -> GraphArrays:
    """Three communities whose members are joined among themselves, with noisy features that tell them."""
    draw = np.random.default_rng(0)
    community = np.arange(NODES) % 3
    joined = draw.random((NODES, NODES)) < np.where(community[:, None] == community, 0.25, 0.01)
    sources, targets = np.triu(joined, 1).nonzero()
    features = np.eye(3)[community] + draw.normal(scale=0.5, size=(NODES, 3))
    labels, splits = np.full(NODES, -1, dtype=np.int64), np.zeros((0, NODES), dtype=np.int8)
    csr = clean_edges(sources, targets, NODES)[0]
    return GraphArrays("communities", csr, features.astype(np.float32), labels, splits, 0)


def contacts() -> CollectionArrays:
    """Small graphs; a pair is a contact if its nodes are two steps apart."""
    collection, _ = motifs(60)
    starts, csr = collection.indptr, collection.csr
    ends, labels, counts = [], [], []
    draw = np.random.default_rng(1)
    for start, stop in pairwise(starts):
        adjacency = np.zeros((stop - start, stop - start), dtype=np.int64)
        for node in range(start, stop):
            adjacency[node - start, csr.indices[csr.indptr[node] : csr.indptr[node + 1]] - start] = 1
        apart = (adjacency @ adjacency > 0) & (adjacency == 0) & ~np.eye(len(adjacency), dtype=bool)
        pairs = np.argwhere(np.triu(np.ones_like(adjacency), 1))
        kept = pairs[apart[pairs[:, 0], pairs[:, 1]] | (draw.random(len(pairs)) < 0.3)]
        ends.append(kept + start)
        labels.append(apart[kept[:, 0], kept[:, 1]].astype(np.int64))
        counts.append(len(kept))
    noise = draw.normal(size=(csr.num_nodes, 2)).astype(np.float32)
    return dataclasses.replace(
        collection,
        task="link",
        features=np.concatenate([collection.features, noise], axis=1),
        labels=np.full(60, -1, dtype=np.int64),
        num_classes=0,
        pairs=Pairs(np.concatenate([[0], np.cumsum(counts)]), np.concatenate(ends), np.concatenate(labels)),
    )


@pytest.fixture
def graph_store(tmp_path: Path) -> GraphStore:
    store = create_store(tmp_path / "graph", communities(), Parameters())
    write_links(store, link_config(tmp_path))
    return store


@pytest.fixture
def contact_store(tmp_path: Path) -> GraphStore:
    store = create_store(tmp_path / "contacts", contacts(), Parameters())
    write_arrangement(store, 4)
    return store


def link_config(output: Path, **settings: object) -> Config:
    return tiny_config(output, **{"model__name": "expanded", "data__task": "link", **settings})


def test_hidden_links_are_hidden_and_false_ones_are_no_edges() -> None:
    csr = communities().csr
    parameters = LinkParameters(split=0, seed=0, validation_share=0.1, test_share=0.2, negatives=3)
    links = draw_links(csr, parameters, directed=False)
    edges = set(zip(edge_sources(csr).tolist(), csr.indices.tolist(), strict=True))
    true = [tuple(pair) for pair in links.ends[links.labels == 1].tolist()]
    false = [tuple(pair) for pair in links.ends[links.labels == 0].tolist()]
    assert len(set(true)) == len(true) == len(edges) // 2
    assert set(true) <= edges
    assert len(set(false)) == len(false)
    assert not set(false) & edges
    assert all(u < v for u, v in true + false)
    counts = np.zeros((3, 2), dtype=np.int64)
    np.add.at(counts, (links.parts, 1 - links.labels), 1)
    assert counts[0][1] == 0
    assert counts[1].tolist() == [round(0.1 * len(true)), 3 * round(0.1 * len(true))]
    assert counts[2].tolist() == [round(0.2 * len(true)), 3 * round(0.2 * len(true))]
    again = draw_links(csr, parameters, directed=False)
    other = draw_links(csr, parameters.model_copy(update={"split": 1}), directed=False)
    assert (again.ends == links.ends).all()
    assert not (other.ends[: len(true)] == links.ends[: len(true)]).all()


def test_a_dense_graph_has_too_few_pairs_to_draw_from() -> None:
    known = np.array([u * 6 + v for u in range(6) for v in range(u + 1, 6)][:-3])
    found = draw_pairs(6, 1, known, np.random.default_rng(0), directed=False)
    assert found[0].tolist() in [[3, 4], [3, 5], [4, 5]]
    with pytest.raises(UserError, match="link_negatives"):
        draw_pairs(6, 2, known, np.random.default_rng(0), directed=False)


def test_the_model_sees_training_links_only(graph_store: GraphStore, tmp_path: Path) -> None:
    config = link_config(tmp_path)
    feed = LinkFeed(graph_store, config, 1, torch.device("cpu"))
    links = read_links(graph_store, 0)
    share = next(feed.shares())
    graph = share.batch
    source, target = (graph.arrangement[ends] for ends in (graph.edges.source, graph.edges.target))  # type: ignore[union-attr]
    seen = {tuple(sorted(pair)) for pair in zip(source.tolist(), target.tolist(), strict=True)}
    assert seen == {tuple(pair) for pair in links.ends[links.parts == 0].tolist()}
    assert share.pairs is not None
    assert share.label is not None
    false = {tuple(pair) for pair in share.pairs[:, share.label == 0].t().tolist()}
    assert not false & seen
    feed.start_epoch(1)
    later = next(feed.shares())
    assert later.pairs is not None
    assert not torch.equal(later.pairs, share.pairs)
    with pytest.raises(UserError, match="the nodes of one whole graph"):
        Inputs.of(graph_store, link_config(tmp_path, model__positions="fixed"))
    with pytest.raises(UserError, match="segment, whose windows"):
        Inputs.of(graph_store, link_config(tmp_path, model__name="segment"))


def test_metrics_of_one_graph_are_those_counted_by_hand(graph_store: GraphStore, tmp_path: Path) -> None:
    config = link_config(tmp_path)
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(graph_store, config)).eval()
    feed = open_feed(graph_store, config, model, 0, 1, torch.device("cpu"))
    with torch.inference_mode():
        found = feed.predict(model, "test")
    scores, labels = found.logits.numpy(), found.label.numpy()
    true, false = scores[labels == 1], scores[labels == 0]
    ranks = [1 + (false > score).sum() + (false == score).sum() / 2 for score in true]
    told = evaluate_predictions(found).metrics
    assert told["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    for k in (1, 3, 10, 50):
        assert told[f"hits_{k}"] == pytest.approx(np.mean([rank <= k for rank in ranks]))
    assert told["roc_auc"] == pytest.approx(metrics.roc_auc_score(labels, scores))
    assert told["average_precision"] == pytest.approx(metrics.average_precision_score(labels, scores))


def test_metrics_of_a_collection_are_averaged_within_graphs_first(
    contact_store: GraphStore, tmp_path: Path
) -> None:
    config = link_config(tmp_path)
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(contact_store, config)).eval()
    feed = open_feed(contact_store, config, model, 0, 1, torch.device("cpu"))
    with torch.inference_mode():
        found = feed.predict(model, "val")
    pairs, starts, csr = contact_store.pairs(), contact_store.graph_indptr(), contact_store.csr()
    by_graph = []
    for graph in rows_of_part(contact_store.split(0), "val"):
        start, stop = int(starts[graph]), int(starts[graph + 1])
        rows = slice(csr.indptr[start], csr.indptr[stop])
        edges = np.stack([edge_sources(csr)[rows], csr.indices[rows]]).astype(np.int64) - start
        x = torch.from_numpy(contact_store.features()[start:stop].copy())
        z = model(x, torch.from_numpy(edges)).detach().numpy()
        own = slice(pairs.indptr[graph], pairs.indptr[graph + 1])
        ranks = []
        for (u, v), label in zip(pairs.ends[own] - start, pairs.labels[own], strict=True):
            if label:
                half = z.shape[1] // 2
                rivals = z[:, half:] @ z[u, :half]
                ranks.append(1 + (np.delete(rivals, v) > rivals[v]).sum())
        by_graph.append((np.mean([1 / rank for rank in ranks]), np.mean([rank <= 3 for rank in ranks])))
    told = evaluate_predictions(found).metrics
    mrr, hits = np.mean(by_graph, axis=0)
    assert told["mrr"] == pytest.approx(mrr, abs=1e-6)
    assert told["hits_3"] == pytest.approx(hits, abs=1e-6)
    assert found.row.numel() == sum(
        int(pairs.indptr[g + 1] - pairs.indptr[g]) for g in rows_of_part(contact_store.split(0), "val")
    )


def test_graphs_without_a_true_link_do_not_count() -> None:
    labels = torch.tensor([1, 0, 1, 0])
    ranks = torch.tensor([1.0, 0.0, 4.0, 0.0])
    told = evaluate_links(
        torch.tensor([2.0, 1.0, 0.0, 3.0]), labels, ranks, torch.tensor([0, 0, 1, 2])
    ).metrics
    assert told["mrr"] == pytest.approx((1 + 0.25) / 2)
    assert told["hits_3"] == 0.5


@pytest.mark.parametrize(
    ("kind", "steps"), [("graph", 2), ("contacts", 7)], ids=["one graph", "a collection"]
)
def test_resumed_equals_undisturbed(
    graph_store: GraphStore,
    contact_store: GraphStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    steps: int,
) -> None:
    store = graph_store if kind == "graph" else contact_store
    config = link_config(tmp_path, train__batch_size=10, train__checkpoint_seconds=0)
    whole_job, whole = run(config, store, "whole")
    broken = make_job(config, store, "broken")
    kill_after(steps, monkeypatch)
    with pytest.raises(KilledError):
        pipeline.training.loop.train_worker(broken)
    monkeypatch.undo()
    pipeline.training.loop.train_worker(broken)
    resumed = read_result(broken.directory)
    assert resumed is not None
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.test == whole.test
    assert whole.metric == "mrr"
    losses = [[record.train_loss for record in read_epochs(j.directory)] for j in (whole_job, broken)]
    assert losses[0] == losses[1]


def test_one_and_two_workers_agree(
    graph_store: GraphStore, contact_store: GraphStore, tmp_path: Path
) -> None:
    config = link_config(tmp_path, model__dropout=0.0, train__epochs=2, train__batch_size=9)
    stores = {"graph": graph_store, "contacts": contact_store}
    alone = [run(config, store, f"alone-{name}")[0] for name, store in stores.items()]
    together = [make_job(config, store, f"together-{name}") for name, store in stores.items()]
    multiprocessing.spawn(_spawned, (together, free_port()), nprocs=2)
    for one_job, two_job in zip(alone, together, strict=True):
        for one, two in zip(read_epochs(one_job.directory), read_epochs(two_job.directory), strict=True):
            assert one.train_loss == pytest.approx(two.train_loss, abs=1e-5)
            assert one.val_loss == pytest.approx(two.val_loss, abs=1e-5)
            assert one.val_metric == pytest.approx(two.val_metric, abs=1e-4)


@pytest.mark.parametrize("kind", ["graph", "contacts"])
def test_predictions_have_a_row_for_every_pair_and_the_scores_of_training(
    graph_store: GraphStore, contact_store: GraphStore, tmp_path: Path, kind: str
) -> None:
    store = graph_store if kind == "graph" else contact_store
    job, result = run(link_config(tmp_path, train__epochs=2), store, "predicted")
    checkpoint = find_checkpoint(job.directory)
    out = tmp_path / "links.parquet"
    done = predict(checkpoint, store, out)
    rows = pq.read_table(out).to_pandas()
    pairs = store.pairs() if store.is_collection else read_links(store, 0)
    assert (done.rows, done.num_rows) == ("pairs", len(rows))
    assert (rows[["source", "target"]].to_numpy() == pairs.ends).all()
    assert (rows["label"].to_numpy() == pairs.labels).all()
    assert done.scores["test"] == pytest.approx(result.test)
    test = rows[rows["split"] == "test"]
    assert metrics.roc_auc_score(test["label"], test["probability"]) == pytest.approx(
        result.test["roc_auc"], abs=0.02
    )
    assert test["rank"].notna().to_numpy().tolist() == (test["label"] == 1).to_numpy().tolist()
    for refused in (
        lambda: predict(checkpoint, store, out, embeddings=True),
        lambda: open_answers(checkpoint)([0], None),
    ):
        with pytest.raises(UserError, match="got a link model"):
            refused()


@pytest.mark.parametrize(
    ("kind", "name"), [("graph", "expanded"), ("graph", "gcn"), ("contacts", "expanded")]
)
def test_links_are_learned(
    graph_store: GraphStore, contact_store: GraphStore, tmp_path: Path, kind: str, name: str
) -> None:
    store = graph_store if kind == "graph" else contact_store
    config = link_config(
        tmp_path, model__name=name, model__dropout=0.0, train__epochs=40, train__metric="roc_auc"
    )
    _, result = run(config, store, f"learned-{name}")
    assert result.test["roc_auc"] > 0.7
