"""Windows equal those cut from the dense adjacency, for every length and across the wrap."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cocn.loading.csr import CSR
from cocn.loading.cutting import build_segments, num_words, unpack
from cocn.loading.sequences import from_order


def random_graph(
    num_nodes: int, density: float, directed: bool, rng: np.random.Generator
) -> NDArray[np.bool_]:
    adjacency = rng.random((num_nodes, num_nodes)) < density
    return adjacency if directed else adjacency | adjacency.T


def make_csr(adjacency: NDArray[np.bool_]) -> CSR:
    indptr = np.concatenate([[0], np.cumsum(adjacency.sum(axis=1))]).astype(np.int64)
    return CSR(indptr, np.nonzero(adjacency)[1].astype(np.int32))


def random_order(heads: int, num_nodes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.stack([rng.permutation(num_nodes) for _ in range(heads)])


@given(
    length=st.integers(2, 64),
    extra=st.integers(0, 80),
    density=st.sampled_from([0.02, 0.3, 1.0]),
    directed=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None)
def test_windows_equal_the_dense_cut(
    length: int, extra: int, density: float, directed: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    num_nodes = length + extra
    adjacency = random_graph(num_nodes, density, directed, rng)
    csr = make_csr(adjacency)
    sequences = from_order(random_order(2, num_nodes, rng))
    windows = build_segments(sequences, csr, length, edge_ids=True).windows(np.arange(num_nodes))

    # n segments per head; that of node v starts at v and continues around the circle.
    places = (sequences.rank.T[:, :, None] + np.arange(length)) % num_nodes
    ids = np.take_along_axis(sequences.order[None], places, axis=2)
    np.testing.assert_array_equal(windows.ids, ids)
    np.testing.assert_array_equal(windows.ids[:, :, 0], np.arange(num_nodes)[:, None].repeat(2, axis=1))
    dense = adjacency[ids[..., :, None], ids[..., None, :]]
    np.testing.assert_array_equal(unpack(windows.words, length), dense)

    assert windows.edges is not None
    sources = np.repeat(np.arange(num_nodes), np.diff(csr.indptr))
    np.testing.assert_array_equal(windows.edges >= 0, dense)
    head, tail = np.broadcast_arrays(ids[..., :, None], ids[..., None, :])
    np.testing.assert_array_equal(sources[windows.edges[dense]], head[dense])
    np.testing.assert_array_equal(csr.indices[windows.edges[dense]], tail[dense])


@pytest.mark.parametrize("length", range(2, 65))
def test_every_length_on_the_smallest_graph_and_one_node_more(length: int) -> None:
    rng = np.random.default_rng(length)
    for num_nodes in (length, length + 1):
        adjacency = random_graph(num_nodes, 0.5, True, rng)
        sequences = from_order(random_order(1, num_nodes, rng))
        windows = build_segments(sequences, make_csr(adjacency), length).windows(np.arange(num_nodes))
        ids = windows.ids[:, 0]
        np.testing.assert_array_equal(
            unpack(windows.words, length)[:, 0], adjacency[ids[:, :, None], ids[:, None]]
        )


def test_by_hand_on_a_ring_of_four() -> None:
    # 0-1-2-3-0 in the order 2 0 1 3: the window at 3 wraps to 2.
    adjacency = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], dtype=bool)
    segments = build_segments(from_order(np.array([[2, 0, 1, 3]])), make_csr(adjacency), 3)
    windows = segments.windows(np.array([3, 2]))
    np.testing.assert_array_equal(windows.ids[:, 0], [[3, 2, 0], [2, 0, 1]])
    # 3-2, 3-0 are edges and 2-0 is not: bits 1, 2, 3 and 6. Then 2-1 and 0-1: bits 2, 5, 6 and 7.
    np.testing.assert_array_equal(windows.words[:, 0, 0], [0b001001110, 0b011100100])


def test_words_hold_all_bits() -> None:
    assert [num_words(length) for length in (2, 8, 9, 16, 32)] == [1, 1, 2, 4, 16]


@pytest.mark.parametrize(
    ("num_nodes", "length", "message"),
    [
        (5, 8, r"Expected 'segment_length' to be at most the 5 nodes of the graph \(got 8\)"),
        (5, 1, r"between 2 and 64 \(got 1\)"),
        (99, 65, r"between 2 and 64 \(got 65\)"),
    ],
)
def test_refuses_lengths(num_nodes: int, length: int, message: str) -> None:
    csr = make_csr(np.zeros((num_nodes, num_nodes), dtype=bool))
    with pytest.raises(ValueError, match=message):
        build_segments(from_order(np.arange(num_nodes)[None]), csr, length)


def test_refuses_sequences_of_another_graph() -> None:
    with pytest.raises(ValueError, match=r"order the 5 nodes of the graph \(got 4\)"):
        build_segments(from_order(np.arange(4)[None]), make_csr(np.zeros((5, 5), dtype=bool)), 2)
