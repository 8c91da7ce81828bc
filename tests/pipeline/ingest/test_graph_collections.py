"""Collections of graphs: what a store keeps of them, how they are arranged, and how batches are gathered."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import torch

import cocn
from pipeline.config.settings import SourceOptions
from pipeline.features.arrangement import write_arrangement
from pipeline.ingest.graph_collections import Graphs, assemble, motifs, one_hot, read_collection
from pipeline.ingest.published import BY_NAME, raw_file
from pipeline.ingest.stage import ingest
from pipeline.models.networks import Inputs, build_model
from pipeline.models.parallel import distribute
from pipeline.runtime.errors import UserError
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import StoreError
from pipeline.store.splits import cross_validation, rows_of_part
from pipeline.training.estimate import make_plan
from pipeline.training.graph_pool import read_pool
from pipeline.training.prepare import prepare
from tests.pipeline.conftest import tiny_config

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

ROOT = Path(os.environ.get("COCN_DATA_ROOT", Path(__file__).resolve().parents[4] / "shared" / "datasets"))


@pytest.fixture
def motif_store(tmp_path: Path) -> GraphStore:
    """Sixty graphs of three classes, arranged."""
    return arranged(tmp_path, 60)


def arranged(directory: Path, num_graphs: int) -> GraphStore:
    options = SourceOptions(source="motifs", num_graphs=num_graphs)
    store = ingest(options, directory / "store").store
    write_arrangement(store, 4)
    return store


@pytest.mark.parametrize("name", ["mutag", "imdb-binary"])
def test_published_collections_are_read_whole(name: str) -> None:
    entry = BY_NAME[name]
    if raw_file(entry, ROOT) is None:
        pytest.skip(f"the raw files of {name} are not on this machine")
    collection, report = read_collection(entry, ROOT)
    assert collection.num_graphs == entry.graphs
    assert report.undirected_edges == entry.edges
    assert (collection.features.sum(1) == 1).all()
    graph = np.repeat(np.arange(entry.graphs), np.diff(collection.indptr))
    rows = np.repeat(np.arange(entry.nodes), collection.csr.degrees())
    assert (graph[rows] == graph[collection.csr.indices]).all()


def test_a_missing_collection_says_what_to_fetch_and_where_to_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **settings: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torch_geometric.datasets.LRGBDataset.download", refuse)
    monkeypatch.setattr("torch_geometric.datasets.TUDataset.download", refuse)
    monkeypatch.setenv("COCN_CACHE", str(tmp_path / "cache"))
    for name, file in (
        ("pcqm-contact", "lrgb/pcqm-contact/raw/train.pt"),
        ("collab", "tu/COLLAB/raw/COLLAB_A.txt"),
    ):
        with pytest.raises(UserError, match=file):
            read_collection(BY_NAME[name], tmp_path)


def test_contacts_are_read_from_raw_files_in_the_layout_of_pyg(tmp_path: Path) -> None:
    raw = tmp_path / "lrgb" / "pcqm-contact" / "raw"
    raw.mkdir(parents=True)
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    contact, apart = torch.tensor([[0], [2]]), torch.tensor([[0, 1], [1, 2]])
    pairs = torch.cat([contact, apart], dim=1)
    for number, part in enumerate(("train", "val", "test")):
        atoms = torch.tensor([[6, 0], [number, 0], [6, 1]])
        graph = (atoms, torch.zeros(4, 3), path, pairs, torch.tensor([1, 0, 0]))
        torch.save([graph, graph], raw / f"{part}.pt")
    collection, report = read_collection(BY_NAME["pcqm-contact"], tmp_path)
    assert (collection.task, collection.num_graphs, report.undirected_edges) == ("link", 6, 12)
    assert collection.splits.tolist() == [[0, 0, 1, 1, 2, 2]]
    # Elements 0, 1, 2 and 6, charges 0 and 1: a column each.
    assert collection.features.shape == (18, 6)
    assert collection.features[3:6].tolist() == collection.features[:3].tolist()
    assert collection.pairs is not None
    assert collection.pairs.indptr.tolist() == [0, 3, 6, 9, 12, 15, 18]
    assert collection.pairs.ends[3:6].tolist() == [[3, 5], [3, 4], [4, 5]]
    assert collection.pairs.labels.tolist() == [1, 0, 0] * 6
    assert not list(raw.parent.glob("processed"))


def test_folds_are_those_of_the_gin_paper() -> None:
    from sklearn.model_selection import StratifiedKFold

    labels = np.random.default_rng(3).integers(0, 3, size=137)
    splits = cross_validation(labels)
    published = StratifiedKFold(n_splits=10, shuffle=True, random_state=0).split(np.zeros(137), labels)
    for row, (train, test) in zip(splits, published, strict=True):
        assert rows_of_part(row, "test").tolist() == test.tolist()
        assert rows_of_part(row, "train", "gin").tolist() == train.tolist()
        assert rows_of_part(row, "val", "gin").tolist() == test.tolist()
        honest = [set(rows_of_part(row, part).tolist()) for part in ("train", "val", "test")]
        assert not honest[0] & honest[1]
        assert honest[0] | honest[1] == set(train.tolist())
        assert abs(len(honest[1]) - len(honest[2])) <= 3
    assert (np.sort(np.argwhere(splits == 2)[:, 1]) == np.arange(137)).all()
    with pytest.raises(ValueError, match="smallest class"):
        cross_validation(np.array([0] * 30 + [1] * 5))


def test_degrees_become_one_column_a_value() -> None:
    assert one_hot(np.array([[5], [2], [5]])).tolist() == [[0, 1], [1, 0], [0, 1]]
    assert one_hot(np.array([[5, 0], [2, 1]])).tolist() == [[0, 1, 1, 0], [1, 0, 0, 1]]


def test_motifs_are_what_their_label_says() -> None:
    collection, report = motifs(60, seed=2)
    again, _ = motifs(60, seed=2)
    assert (collection.csr.indices == again.csr.indices).all()
    assert report.self_loops == report.duplicates == 0
    sizes = np.diff(collection.indptr)
    edges = np.diff(collection.csr.indptr[collection.indptr]) // 2
    # A tree has one edge less than nodes; the cycle adds one, the clique six, the star none.
    assert (edges - (sizes - 1) == np.array([1, 6, 0])[collection.labels]).all()


def test_a_store_keeps_a_collection_and_a_rerun_is_a_no_op(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    options = SourceOptions(source="motifs", num_graphs=60)
    first = prepare(config, options)
    store = open_store(first.store)
    store.verify()
    collection, _ = motifs(60)
    assert store.is_collection
    assert (store.num_rows, store.manifest.num_graphs, store.manifest.task) == (60, 60, "graph")
    assert (store.graph_indptr() == collection.indptr).all()
    assert (store.labels() == collection.labels).all()
    assert all((store.split(k) == collection.splits[k]).all() for k in range(10))
    assert (store.features() == collection.features).all()
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*") if path.is_file()}
    second = prepare(config, options)
    assert [stage.done_before for stage in second.stages] == [True, True]
    assert second.digest == first.digest
    assert before == {path: path.stat().st_mtime_ns for path in store.path.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match="truncate"):
        prepare(tiny_config(tmp_path, positions__truncate=3), options)


@pytest.mark.parametrize(
    ("name", "positions"), [("expanded", "explicit"), ("vanilla", "implicit"), ("sparse", "explicit")]
)
@pytest.mark.parametrize("chosen", [[7, 0, 31], [5], [4, 4]], ids=["several", "one", "even"])
def test_a_gathered_batch_equals_one_prepared_from_scratch(
    motif_store: GraphStore, tmp_path: Path, name: str, positions: str, chosen: list[int]
) -> None:
    config = tiny_config(tmp_path, model__name=name, model__positions=positions)
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(motif_store, config)).eval()
    pool = read_pool(motif_store, config, "graph", torch.device("cpu"))
    gathered = pool.batch(torch.tensor(chosen))

    x, edges, batch = [], [], []
    csr, starts = motif_store.csr(), motif_store.graph_indptr()
    for number, graph in enumerate(chosen):
        start, stop = int(starts[graph]), int(starts[graph + 1])
        shift = sum(len(part) for part in x) - start
        x.append(motif_store.features()[start:stop])
        batch += [number] * (stop - start)
        for node in range(start, stop):
            others = csr.indices[csr.indptr[node] : csr.indptr[node + 1]].tolist()
            edges += [(node + shift, other + shift) for other in others]
    assert isinstance(model, cocn.CoCN)
    prepared = model.prepare(
        torch.from_numpy(np.concatenate(x)),
        edge_index=torch.tensor(edges).t().contiguous(),
        batch=torch.tensor(batch),
    )
    assert prepared.x is not None
    assert torch.equal(gathered.x, prepared.x)
    assert torch.equal(gathered.lengths, prepared.lengths)
    for field in ("graph", "source", "target"):
        assert torch.equal(getattr(gathered.edges, field), getattr(prepared.edges, field))
    for field in ("indptr", "indices", "values"):
        assert torch.equal(getattr(gathered.adjacency, field), getattr(prepared.adjacency, field))
    assert (gathered.slots is None) == (prepared.slots is None)
    assert gathered.slots is None or torch.equal(gathered.slots, prepared.slots)
    torch.testing.assert_close(model(gathered), model(prepared))


def test_graphs_of_a_step_are_read_in_parts_of_like_size(motif_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, model__name="expanded", model__positions="explicit")
    pool = read_pool(motif_store, config, "graph", torch.device("cpu"))
    chosen = torch.tensor([7, 0, 31, 12])
    (alike,) = pool.parts_of_like_size(chosen)
    assert pool.lengths[alike].tolist() == sorted(pool.lengths[chosen].tolist())

    sizes = torch.tensor([3, 600, 2, 40, 16, 31, 1, 3])
    uneven = dataclasses.replace(pool, nodes=torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)]))
    parts = uneven.parts_of_like_size(torch.arange(8))
    assert [sizes[part].tolist() for part in parts] == [[1], [2, 3, 3], [16, 31], [40], [600]]

    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(motif_store, config)).eval()
    network = distribute(model, config.model, 0, 1, batched=True)
    together = network(pool.batch(chosen))
    torch.testing.assert_close(network((pool.batch(chosen[:1]), pool.batch(chosen[1:]))), together)


@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_baselines_pool_the_nodes_of_each_graph(
    motif_store: GraphStore, tmp_path: Path, pooling: str
) -> None:
    config = tiny_config(tmp_path, model__name="sage", model__pooling=pooling)
    batch = read_pool(motif_store, config, "graph", torch.device("cpu")).batch(torch.tensor([3, 1, 8]))
    inputs = Inputs.of(motif_store, config)
    embedded = []
    for task in ("graph", "node"):
        torch.manual_seed(0)
        model = build_model(config.model, config.segments, dataclasses.replace(inputs, task=task)).eval()
        embedded.append(model.embed(batch).detach())
    graphs = torch.split(embedded[1], batch.lengths.tolist())
    by_hand = torch.stack([nodes.mean(0) if pooling == "mean" else nodes.sum(0) for nodes in graphs])
    torch.testing.assert_close(embedded[0], by_hand)


def test_models_that_are_not_meant_for_graphs_are_refused(motif_store: GraphStore, tmp_path: Path) -> None:
    for settings, reason in (
        ({"model__name": "segment"}, "segment, whose windows"),
        ({"model__name": "linkx"}, "linkx, which has parameters"),
        ({"model__name": "expanded", "model__positions": "fixed"}, "explicit or implicit"),
        ({"model__name": "expanded", "data__task": "link"}, "'data.task' to be graph for motifs"),
        ({"model__name": "expanded", "data__task": "node"}, "'data.task' to be graph for motifs"),
    ):
        with pytest.raises(UserError, match=reason) as caught:
            Inputs.of(motif_store, tiny_config(tmp_path, **settings))
        assert "\n" not in str(caught.value)


def test_a_collection_that_is_not_cross_validated_gets_random_splits_by_shares() -> None:
    labels = np.arange(100) % 2
    graphs = Graphs(np.full(100, 2), np.stack([np.arange(0, 200, 2), np.arange(1, 200, 2)]), None, labels)
    collection, _ = assemble("pairs", graphs, num_folds=3, shares=(0.7, 0.1))
    assert [np.bincount(split).tolist() for split in collection.splits] == [[70, 10, 20]] * 3
    assert (collection.splits[0] != collection.splits[1]).any()
    again, _ = assemble("pairs", graphs, num_folds=3, shares=(0.7, 0.1))
    assert (collection.splits == again.splits).all()


def test_a_plan_has_the_stages_of_a_collection(tmp_path: Path) -> None:
    plan = make_plan(tiny_config(tmp_path), SourceOptions(source="motifs", num_graphs=60))
    collection, _ = motifs(60)
    assert [stage.name for stage in plan.stages] == ["ingest", "arrangement"]
    assert (plan.size.graphs, plan.size.nodes) == (60, collection.csr.num_nodes)
    assert make_plan(tiny_config(tmp_path), SourceOptions(source="mutag")).size.graphs == 188
