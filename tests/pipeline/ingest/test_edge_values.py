"""Weights and features of edges, from files to windows and models."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import cocn
from pipeline.config.loading import Config
from pipeline.ingest.checks import make_raw
from pipeline.ingest.external_sort import EdgeSpill
from pipeline.ingest.stage import SourceOptions, ingest
from pipeline.models.networks import Inputs, build_model
from pipeline.runtime.errors import UserError
from pipeline.segments.loader import SegmentLoader
from pipeline.segments.stage import open_segments
from pipeline.store.cleaning import edge_sources
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import read_graph, read_node_table
from pipeline.training.loop import TrainJob, train_worker
from pipeline.training.needs import resolve_needs
from pipeline.training.prepare import open_prepared
from pipeline.training.results import read_epochs
from tests.pipeline.conftest import tiny_config

NODES = 40


def matrix_of(store: GraphStore) -> NDArray[np.float32]:
    """The stored graph as a dense matrix of values [n, n, e]."""
    csr, values = store.csr(), store.edge_values()
    assert values is not None
    dense = np.zeros((csr.num_nodes, csr.num_nodes, values.shape[1]), dtype=np.float32)
    dense[edge_sources(csr), csr.indices] = values
    return dense


def weighted_table(path: Path, *, seed: int = 0) -> tuple[Path, NDArray[np.float32]]:
    """A random weighted graph as Parquet, each edge once, and its symmetric matrix."""
    draw = np.random.default_rng(seed)
    ends = np.stack(np.triu_indices(NODES, 1), axis=1)
    ends = ends[draw.choice(len(ends), 120, replace=False)]
    weights = draw.uniform(0.5, 3, len(ends)).astype(np.float32)
    pq.write_table(pa.table({"a": ends[:, 0], "b": ends[:, 1], "weight": weights}), path)
    matrix = np.zeros((NODES, NODES), dtype=np.float32)
    matrix[ends[:, 0], ends[:, 1]] = weights
    return path, matrix + matrix.T


def write_nodes(path: Path) -> Path:
    draw = np.random.default_rng(1)
    labels = np.arange(NODES) % 2
    columns = {"x": draw.standard_normal(NODES) + labels, "z": draw.standard_normal(NODES), "label": labels}
    pq.write_table(pa.table(columns), path)
    return path


def test_first_of_repeated_edges_counts_and_missing_directions_get_the_same_value() -> None:
    sources, targets = np.array([0, 0, 1, 2, 3]), np.array([1, 1, 0, 1, 3])
    values = np.array([[5.0], [6.0], [7.0], [8.0], [9.0]])
    raw = make_raw("g", "file", sources, targets, num_nodes=4, edge_values=values)
    assert raw.edge_values is not None
    found = dict(
        zip(
            zip(edge_sources(raw.csr).tolist(), raw.csr.indices.tolist(), strict=True),
            raw.edge_values[:, 0].tolist(),
            strict=True,
        )
    )
    assert found == {(0, 1): 5.0, (1, 0): 7.0, (1, 2): 8.0, (2, 1): 8.0}


@given(data=st.data(), directed=st.booleans(), memory=st.sampled_from([1, 50]))
@settings(max_examples=25, deadline=None)
def test_values_on_disk_are_sorted_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, directed: bool, memory: int
) -> None:
    size = data.draw(st.integers(2, 12))
    ends = st.lists(st.integers(0, size - 1), min_size=90, max_size=90)
    sources, targets = np.array(data.draw(ends)), np.array(data.draw(ends))
    values = np.arange(180, dtype=np.float32).reshape(90, 2)
    expected = make_raw("g", "f", sources, targets, num_nodes=size, edge_values=values, directed=directed)
    spill = EdgeSpill(
        tmp_path_factory.mktemp("spill"), size, directed=directed, num_values=2, memory_edges=memory
    )
    for start in range(0, 90, 17):
        part = slice(start, start + 17)
        spill.append(sources[part], targets[part], values[part])
    done = spill.finish()
    assert done.values is not None
    assert np.array_equal(done.csr.indices, expected.csr.indices)
    assert np.array_equal(done.values, expected.edge_values)


def test_weights_reach_the_store_from_every_format(tmp_path: Path) -> None:
    table, matrix = weighted_table(tmp_path / "edges.parquet")
    rows = pq.read_table(table)
    csv = tmp_path / "edges.csv"
    lines = ["a,b,weight"] + [
        f"{a},{b},{w}"
        for a, b, w in zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True)
    ]
    csv.write_text("\n".join(lines))
    archive = tmp_path / "graph.npz"
    pairs = np.stack([rows["a"].to_numpy(), rows["b"].to_numpy()])
    np.savez(archive, edges=pairs, edge_values=rows["weight"].to_numpy(), labels=np.zeros(NODES, dtype=int))
    for file in (table, csv, archive):
        nodes = None if file == archive else NODES
        store = ingest(SourceOptions(source=str(file), num_nodes=nodes), tmp_path / file.suffix[1:]).store
        assert store.manifest.num_edge_features == 1
        assert np.array_equal(matrix_of(store)[..., 0], matrix)


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    file = tmp_path / "e.csv"
    file.write_text("a,b,length,kind\n0,1,2.5,1\n1,2,0.5,0\n")
    plain = ingest(SourceOptions(source=str(file)), tmp_path / "plain").store
    assert plain.edge_values() is None
    both = ingest(SourceOptions(source=str(file), weight_column="length, kind"), tmp_path / "both").store
    assert matrix_of(both)[1].tolist() == [[2.5, 1.0], [0.0, 0.0], [0.5, 0.0]]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("a,b,weight\n0,1,x\n", None, "column 'weight' of .* to hold numbers"),
        ("a,b,weight\n0,1,1\n1,2,\n", None, "to have no gaps \\(got one in row 2\\)"),
        ("a,b,weight\n0,1,1\n1,2,inf\n", None, "to be finite \\(got \\[inf\\] in row 2\\)"),
        ("a,b,weight\n0,1,1\n", "mass", "to have column 'mass' \\(got a, b, weight\\)"),
    ],
)
def test_bad_weights_are_named(tmp_path: Path, text: str, column: str | None, message: str) -> None:
    file = tmp_path / "e.csv"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        ingest(SourceOptions(source=str(file), weight_column=column), tmp_path / "store")


@pytest.fixture(scope="module")
def stores(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[GraphStore, Config]]:
    """Stores of the same graph with and without its weights, with the stages of the segment model."""
    root = tmp_path_factory.mktemp("stores")
    table, _ = weighted_table(root / "weighted.parquet")
    pq.write_table(pq.read_table(table).select(["a", "b"]), root / "plain.parquet")
    nodes = write_nodes(root / "nodes.parquet")
    found = {}
    for kind in ("weighted", "plain"):
        source = str(root / f"{kind}.parquet")
        config = tiny_config(
            root, data__source=source, data__features=str(nodes), data__store=str(root / kind)
        )
        found[kind] = open_prepared(config), config
    return found


def test_windows_hold_the_weights_of_their_edges(stores: dict[str, tuple[GraphStore, Config]]) -> None:
    store, config = stores["weighted"]
    matrix = matrix_of(store)
    source = open_segments(store, 0, "train", read_node_table(store, resolve_needs(config, store)))
    for batch in SegmentLoader(source, 10, shuffle=False):
        assert batch.values is not None
        table = dict(enumerate(nodes_of(batch, store)))
        ids = np.vectorize(table.get)(batch.index.numpy())
        expected = matrix[ids[..., :, None], ids[..., None, :]]
        assert np.array_equal(batch.values.numpy(), expected)


def nodes_of(batch: cocn.SegmentBatch, store: GraphStore) -> list[int]:
    """The node of every row of x, identified by its unique features."""
    features = store.features()
    places = {row.tobytes(): node for node, row in enumerate(np.ascontiguousarray(features))}
    return [places[row.tobytes()] for row in batch.x[:, : features.shape[1]].contiguous().numpy()]


def test_a_segment_model_in_batches_equals_the_one_on_the_whole_weighted_graph(
    stores: dict[str, tuple[GraphStore, Config]],
) -> None:
    store, config = stores["weighted"]
    config = config.model_copy(update={"model": config.model.model_copy(update={"propagated_features": 0})})
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(store, config)).eval()
    whole = model(read_graph(store, config))
    source = open_segments(store, 0, "test", read_node_table(store, resolve_needs(config, store)))
    for batch in SegmentLoader(source, 7, shuffle=False):
        assert torch.allclose(model(batch), whole[batch.node], atol=1e-5)


@pytest.mark.parametrize("name", ["segment", "sparse"])
def test_a_weighted_graph_trains_differently_from_the_plain_one(
    stores: dict[str, tuple[GraphStore, Config]], tmp_path: Path, name: str
) -> None:
    losses = []
    for kind, (store, config) in stores.items():
        config = config.model_copy(update={"model": config.model.model_copy(update={"name": name})})
        (tmp_path / kind).mkdir()
        train_worker(TrainJob(config, store.path, tmp_path / kind))
        losses.append([record.train_loss for record in read_epochs(tmp_path / kind)])
    assert len(losses[0]) == len(losses[1]) == 3
    assert all(abs(one - two) > 1e-4 for one, two in zip(*losses, strict=True))
