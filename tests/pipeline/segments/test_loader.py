"""The loader: the same steps for any number of ranks, every node once, exact resume, one batch type."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cocn.segments import SegmentBatch
from pipeline.orders.sequences import from_order
from pipeline.segments.loader import LoaderState, SegmentLoader
from pipeline.segments.records import MemorySource, NodeTable, Records
from pipeline.segments.windows import Segments, build_segments
from pipeline.store.arrays import CSR

NUM_NODES = 700
LENGTH = 5


def ring(num_nodes: int) -> CSR:
    nodes = np.arange(num_nodes)
    indices = np.sort(np.stack([(nodes - 1) % num_nodes, (nodes + 1) % num_nodes], axis=1), axis=1)
    return CSR(np.arange(0, 2 * num_nodes + 1, 2), indices.reshape(-1).astype(np.int32))


def make_source(num_rows: int, seed: int = 0, num_nodes: int = NUM_NODES) -> MemorySource:
    rng = np.random.default_rng(seed)
    sequences = from_order(np.stack([rng.permutation(num_nodes) for _ in range(2)]))
    features = rng.standard_normal((num_nodes, 3)).astype(np.float32)
    extra = np.arange(num_nodes, dtype=np.float32)[:, None]
    return MemorySource(
        build_segments(sequences, ring(num_nodes), LENGTH),
        nodes=rng.permutation(num_nodes)[:num_rows],
        labels=rng.integers(0, 4, num_nodes),
        table=NodeTable((features, extra), positions=extra * 2),
    )


def replace_segments(source: MemorySource, segments: Segments) -> MemorySource:
    return MemorySource(segments, source._nodes, source._labels, source.table)


SOURCE = make_source(600)


def nodes_by_step(loader: SegmentLoader) -> list[NDArray[np.int64]]:
    return [batch.node.numpy() for batch in loader]


def union_by_step(
    world_size: int, batch_size: int, epoch: int, start: LoaderState | None = None
) -> list[list[int]]:
    ranks = []
    for rank in range(world_size):
        loader = SegmentLoader(SOURCE, batch_size, seed=7, rank=rank, world_size=world_size)
        loader.set_epoch(epoch)
        if start is not None:
            loader.load_state(start)
        ranks.append(nodes_by_step(loader))
        assert len(ranks[-1]) == len(loader) - (0 if start is None else loader.plan.step_at(start.position))
    return [np.concatenate(parts).tolist() for parts in zip(*ranks, strict=True)]


@given(batch_size=st.integers(8, 700), world_size=st.sampled_from([2, 3, 4]), epoch=st.integers(0, 3))
@settings(max_examples=25, deadline=None)
def test_ranks_together_see_the_same_steps(batch_size: int, world_size: int, epoch: int) -> None:
    steps = union_by_step(1, batch_size, epoch)
    assert union_by_step(world_size, batch_size, epoch) == steps
    seen = [node for step in steps for node in step]
    assert len(seen) == SOURCE.num_rows
    assert sorted(seen) == sorted(SOURCE.take(np.arange(SOURCE.num_rows)).node.tolist())


@given(
    batch_size=st.integers(8, 200),
    stop=st.floats(0, 1),
    world_sizes=st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4])),
)
@settings(max_examples=25, deadline=None)
def test_resumes_in_mid_epoch(batch_size: int, stop: float, world_sizes: tuple[int, int]) -> None:
    before, after = world_sizes
    loader = SegmentLoader(SOURCE, batch_size, seed=7, rank=before - 1, world_size=before)
    loader.set_epoch(2)
    consumed = round(stop * len(loader))
    for _ in loader.take(consumed):
        pass
    state = LoaderState.model_validate_json(loader.state().model_dump_json())
    assert state.epoch == 2
    assert union_by_step(after, batch_size, 0, start=state) == union_by_step(1, batch_size, 2)[consumed:]


def test_state_inside_the_loop_counts_the_batch_at_work() -> None:
    loader = SegmentLoader(SOURCE, 100)
    states = [loader.state().position for _ in loader]
    assert states == [100, 200, 300, 400, 500, 600]
    assert loader.remaining == 0


def test_an_ended_epoch_stays_ended_until_the_next() -> None:
    loader = SegmentLoader(SOURCE, 100)
    first = nodes_by_step(loader)
    assert nodes_by_step(loader) == []
    loader.set_epoch(1)
    second = nodes_by_step(loader)
    assert len(first) == len(second) == len(loader)
    assert not np.array_equal(first[0], second[0])
    loader.set_epoch(0)
    np.testing.assert_array_equal(np.concatenate(nodes_by_step(loader)), np.concatenate(first))


def test_evaluation_is_sequential_and_starts_over() -> None:
    loader = SegmentLoader(SOURCE, 256, shuffle=False)
    expected = SOURCE.take(np.arange(SOURCE.num_rows)).node
    for _ in range(2):
        np.testing.assert_array_equal(np.concatenate(nodes_by_step(loader)), expected)


def test_breaking_off_leaves_no_thread_and_continues() -> None:
    loader = SegmentLoader(SOURCE, 50)
    whole = nodes_by_step(SegmentLoader(SOURCE, 50))
    for batch in loader:
        np.testing.assert_array_equal(batch.node, whole[0])
        break
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]
    np.testing.assert_array_equal(np.concatenate(nodes_by_step(loader)), np.concatenate(whole[1:]))


def test_batches_hold_what_the_records_say() -> None:
    loader = SegmentLoader(SOURCE, 128)
    labels = {int(node): int(label) for node, label in zip(*node_labels(), strict=True)}
    for batch in loader:
        check_batch(batch, labels)


def node_labels() -> tuple[NDArray[np.integer], NDArray[np.int64]]:
    records = SOURCE.take(np.arange(SOURCE.num_rows))
    return records.node, records.label


def check_batch(batch: SegmentBatch, labels: dict[int, int]) -> None:
    windows = SOURCE.segments.windows(batch.node.numpy())
    # The last feature of a node is its id, so the gathered rows say which node they belong to.
    ids = batch.x[:, -1].long()
    assert ids.unique().numel() == ids.numel()
    assert torch.equal(ids[batch.index], torch.from_numpy(windows.ids).long())
    assert torch.equal(batch.words, torch.from_numpy(windows.words))
    assert torch.equal(batch.x[:, :3], torch.from_numpy(SOURCE.table.features[0])[ids])
    assert batch.positions is not None
    assert torch.equal(batch.positions[:, 0], 2 * batch.x[:, -1])
    assert batch.y is not None
    assert batch.y.tolist() == [labels[int(node)] for node in batch.node]


def test_weighted_edges_come_as_values() -> None:
    rng = np.random.default_rng(5)
    csr = ring(20)
    weights = rng.standard_normal((csr.num_edges, 2)).astype(np.float32)
    table = NodeTable((np.zeros((20, 1), dtype=np.float32),), edge_values=weights)
    segments = build_segments(from_order(rng.permutation(20)[None]), csr, 4, edge_ids=True)
    source = MemorySource(segments, np.arange(20), np.zeros(20, dtype=np.int64), table)
    dense = np.zeros((20, 20, 2), dtype=np.float32)
    dense[np.repeat(np.arange(20), 2), csr.indices] = weights
    for batch in SegmentLoader(source, 8):
        ids = segments.windows(batch.node.numpy()).ids
        assert batch.values is not None
        np.testing.assert_array_equal(batch.values, dense[ids[..., :, None], ids[..., None, :]])


def test_new_sequences_keep_the_rows() -> None:
    other = replace_segments(SOURCE, make_source(600, seed=9).segments)
    loader = SegmentLoader(SOURCE, 100)
    expected = nodes_by_step(SegmentLoader(SOURCE, 100))
    seen = [batch.node for batch in loader.take(2)]
    loader.set_source(other)
    for batch in loader.take(99):
        assert torch.equal(batch.words, torch.from_numpy(other.segments.windows(batch.node.numpy()).words))
        seen.append(batch.node)
    np.testing.assert_array_equal(torch.cat(seen), np.concatenate(expected))
    with pytest.raises(ValueError, match=r"600 rows, like the previous one \(got 500\)"):
        loader.set_source(make_source(500))


def test_global_rows_add_up() -> None:
    loader = SegmentLoader(SOURCE, 77, world_size=3, rank=1)
    assert sum(loader.global_rows(step) for step in range(len(loader))) == SOURCE.num_rows


def test_refuses_a_state_of_other_batches() -> None:
    state = SegmentLoader(SOURCE, 100).state()
    with pytest.raises(ValueError, match="Expected 'state' to belong to a loader with"):
        SegmentLoader(SOURCE, 50).load_state(state)
    with pytest.raises(ValueError, match="Expected 'rank' to be below 'world_size', 2"):
        SegmentLoader(SOURCE, 50, rank=2, world_size=2)


class BrokenSource(MemorySource):
    def take(self, rows: NDArray[np.int64]) -> Records:
        raise OSError("the disk is gone")


def test_errors_of_the_thread_reach_the_caller() -> None:
    source = BrokenSource(SOURCE.segments, np.arange(10), np.zeros(NUM_NODES, dtype=np.int64), SOURCE.table)
    with pytest.raises(OSError, match="the disk is gone"):
        next(iter(SegmentLoader(source, 5)))
