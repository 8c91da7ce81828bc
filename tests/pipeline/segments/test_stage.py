"""The segments stage: shards hold the brute-force windows, rerun is a no-op, resumed equals undisturbed."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pydantic import BaseModel

import pipeline.segments.stage
from pipeline.config.loading import Config, DataConfig, PositionConfig, SegmentConfig
from pipeline.orders.sequences import sequence
from pipeline.orders.stage import head_positions
from pipeline.runtime.errors import UserError
from pipeline.segments.loader import SegmentLoader
from pipeline.segments.stage import PARTS, open_segments, open_sequences, plan_shards, write_segments
from pipeline.segments.windows import unpack
from pipeline.storage.files import list_column
from pipeline.store.access import create_store, open_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.graph_store import GraphStore, PositionSummary
from pipeline.store.manifest import StoreError

NUM_NODES = 90
LENGTH = 9


class Parameters(BaseModel):
    value: int = 1


def dense_graph(num_nodes: int = NUM_NODES) -> NDArray[np.bool_]:
    upper = np.triu(np.random.default_rng(4).random((num_nodes, num_nodes)) < 0.2, k=1)
    return upper | upper.T


def make_store(path: Path, num_nodes: int = NUM_NODES, num_splits: int = 2) -> GraphStore:
    rng = np.random.default_rng(3)
    adjacency = dense_graph(num_nodes)
    indptr = np.concatenate([[0], np.cumsum(adjacency.sum(axis=1))]).astype(np.int64)
    graph = GraphArrays(
        name="random",
        csr=CSR(indptr, np.nonzero(adjacency)[1].astype(np.int32)),
        features=np.arange(num_nodes, dtype=np.float32)[:, None],
        labels=rng.integers(0, 3, num_nodes),
        splits=rng.integers(-1, 3, (num_splits, num_nodes)).astype(np.int8),
        num_classes=3,
    )
    store = create_store(path, graph, Parameters())
    with store.begin("positions", Parameters()) as stage:
        columns = rng.integers(0, 4, (num_nodes, 3)).astype(np.float32)
        stage.write_table("columns.arrow", pa.table({"columns": list_column(columns)}))
        stage.commit(PositionSummary(columns=("a", "b", "c")))
    return store


def make_config(split: int = 0, **values: int) -> Config:
    settings = {"length": LENGTH, "shard_rows": 10, **values}
    return Config(
        data=DataConfig(split=split),
        positions=PositionConfig(order="profile"),
        segments=SegmentConfig.model_validate(settings),
    )


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "timings.json"
    }


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return make_store(tmp_path / "store")


def test_shards_hold_the_dense_windows(store: GraphStore) -> None:
    assert write_segments(store, make_config(split=1))
    adjacency, sequences = dense_graph(), open_sequences(store, 1)
    seen = []
    for number, part in zip((0, 1, 2, -1), PARTS, strict=True):
        source = open_segments(store, 1, part)
        records = source.take(np.arange(source.num_rows))
        np.testing.assert_array_equal(np.sort(records.node), np.flatnonzero(store.split(1) == number))
        np.testing.assert_array_equal(records.label, store.labels()[records.node])
        places = (sequences.rank.T[records.node][:, :, None] + np.arange(LENGTH)) % NUM_NODES
        ids = np.take_along_axis(sequences.order[None], places, axis=2)
        np.testing.assert_array_equal(records.windows.ids, ids)
        dense = adjacency[ids[..., :, None], ids[..., None, :]]
        np.testing.assert_array_equal(unpack(records.windows.words, LENGTH), dense)
        seen += records.node.tolist()
    assert sorted(seen) == list(range(NUM_NODES))


def test_first_head_ascends_and_all_heads_differ(store: GraphStore) -> None:
    write_segments(store, make_config())
    order = open_sequences(store, 0).order
    assert (np.diff(store.positions()[order[0], 0]) >= 0).all()
    assert len({row.tobytes() for row in order}) == 8


def test_heads_follow_the_family_that_is_asked_for(store: GraphStore) -> None:
    config = make_config().model_copy(update={"positions": PositionConfig(order="rwpe")})
    write_segments(store, config)
    columns = head_positions(store, 8, length=LENGTH, family="rwpe")
    np.testing.assert_array_equal(open_sequences(store, 0).order, sequence(columns, store.csr()).order)
    with pytest.raises(StoreError, match="family=rwpe stored, profile requested"):
        write_segments(store, make_config())


def test_rows_are_shuffled_by_the_seed(store: GraphStore) -> None:
    orders = {}
    for seed in (0, 1):
        write_segments(store, make_config(seed=seed), replace=True)
        source = open_segments(store, 0, "train")
        orders[seed] = source.take(np.arange(source.num_rows)).node
    assert not (np.diff(orders[0]) > 0).all()
    assert not np.array_equal(orders[0], orders[1])


def test_shards_have_the_asked_size(store: GraphStore) -> None:
    write_segments(store, make_config(shard_rows=7))
    rows = [store.table(name).num_rows for name in store.names("segments-0") if "/train/" in name]
    assert rows[:-1] == [7] * (len(rows) - 1)
    assert 0 < rows[-1] <= 7


def test_take_reads_across_shards_in_any_order(store: GraphStore) -> None:
    write_segments(store, make_config(shard_rows=4))
    source = open_segments(store, 0, "train")
    whole = source.take(np.arange(source.num_rows))
    rows = np.random.default_rng(0).permutation(source.num_rows)
    mixed = source.take(rows)
    np.testing.assert_array_equal(mixed.node, whole.node[rows])
    np.testing.assert_array_equal(mixed.label, whole.label[rows])
    np.testing.assert_array_equal(mixed.windows.ids, whole.windows.ids[rows])
    np.testing.assert_array_equal(mixed.windows.words, whole.windows.words[rows])


def test_consecutive_rows_are_views_of_the_map(store: GraphStore) -> None:
    write_segments(store, make_config())
    records = open_segments(store, 0, "train").take(np.arange(2, 6))
    for array in (records.node, records.label, records.windows.ids, records.windows.words):
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_loader_reads_shards_and_memory_alike(store: GraphStore) -> None:
    write_segments(store, make_config())
    loader = SegmentLoader(open_segments(store, 0, "test"), 6, seed=1)
    for batch in loader:
        assert batch.x[batch.index, 0][:, :, 0].eq(batch.node[:, None]).all()
    assert loader.step == len(loader)


def test_rerun_is_a_no_op_and_a_second_build_has_the_same_bytes(store: GraphStore, tmp_path: Path) -> None:
    write_segments(store, make_config())
    before = digests(store.path)
    assert not write_segments(open_store(store.path), make_config())
    assert digests(store.path) == before
    again = make_store(tmp_path / "again")
    write_segments(again, make_config())
    assert digests(again.path) == before


def test_resumed_equals_undisturbed(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    write_shard = pipeline.segments.stage.write_shard

    def stop_after_three(stage: object, plan: pipeline.segments.stage.ShardPlan, *arguments: object) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(plan.name)
        write_shard(stage, plan, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline.segments.stage, "write_shard", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        write_segments(store, make_config())
    assert not open_store(store.path).has("segments-0")

    repeated: list[str] = []

    def record(stage: object, plan: pipeline.segments.stage.ShardPlan, *arguments: object) -> None:
        repeated.append(plan.name)
        write_shard(stage, plan, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline.segments.stage, "write_shard", record)
    write_segments(store, make_config())
    assert not set(written) & set(repeated)
    monkeypatch.undo()
    undisturbed = make_store(tmp_path / "undisturbed")
    write_segments(undisturbed, make_config())
    assert digests(store.path) == digests(undisturbed.path)


def test_ray_tasks_write_the_same_bytes(store: GraphStore, tmp_path: Path, local_ray: None) -> None:
    write_segments(store, make_config(), parallel=False)
    other = make_store(tmp_path / "other")
    write_segments(other, make_config(), parallel=True)
    assert digests(other.path) == digests(store.path)


def test_splits_stand_side_by_side_and_parameters_never_mix(store: GraphStore) -> None:
    write_segments(store, make_config(split=0))
    write_segments(store, make_config(split=1))
    assert store.has("segments-0")
    assert store.has("segments-1")
    with pytest.raises(StoreError, match="length=9 stored, 8 requested"):
        write_segments(store, make_config(split=0, length=8))


def test_a_graph_without_splits_is_all_rest(tmp_path: Path) -> None:
    store = make_store(tmp_path / "bare", num_splits=0)
    write_segments(store, make_config())
    assert open_segments(store, 0, "rest").num_rows == NUM_NODES
    with pytest.raises(UserError, match="to have 'train' nodes"):
        open_segments(store, 0, "train")


def test_refuses_a_graph_shorter_than_a_segment(tmp_path: Path) -> None:
    store = make_store(tmp_path / "tiny", num_nodes=5)
    with pytest.raises(
        UserError, match=r"^Expected 'segment_length' to be at most the 5 nodes of the graph \(got 8\)$"
    ):
        write_segments(store, make_config(length=8))


def test_refuses_to_open_what_was_not_written(store: GraphStore) -> None:
    with pytest.raises(UserError, match="to have segments of split 0"):
        open_segments(store, 0, "train")


def test_every_node_is_planned_once(store: GraphStore) -> None:
    parameters = pipeline.segments.stage.SegmentParameters(
        family="profile", length=8, heads=1, shard_rows=7, seed=0, split=0, edge_ids=False
    )
    nodes = np.concatenate([plan.nodes for plan in plan_shards(store, parameters)])
    np.testing.assert_array_equal(np.sort(nodes), np.arange(NUM_NODES))
