"""Sequences ascend, do not depend on node ids, and break ties by structure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cocn.loading.csr import CSR
from cocn.loading.sequences import dense_ranks, from_order, sequence


def make_csr(edges: NDArray[np.int64], num_nodes: int) -> CSR:
    edges = edges[:, np.lexsort((edges[1], edges[0]))]
    counts = np.bincount(edges[0], minlength=num_nodes)
    return CSR(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), edges[1].astype(np.int32))


def random_edges(num_nodes: int, density: float, rng: np.random.Generator) -> NDArray[np.int64]:
    upper = np.triu(rng.random((num_nodes, num_nodes)) < density, k=1)
    return np.array(np.nonzero(upper | upper.T), dtype=np.int64)


@given(num_nodes=st.integers(1, 30), heads=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_distinct_positions_are_sorted(num_nodes: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = rng.standard_normal((num_nodes, heads))
    sequences = sequence(positions, make_csr(random_edges(num_nodes, 0.3, rng), num_nodes))
    np.testing.assert_array_equal(sequences.order, np.argsort(positions.T, axis=1))
    np.testing.assert_array_equal(sequences.rank, np.argsort(sequences.order, axis=1))


@given(num_nodes=st.integers(2, 30), levels=st.integers(1, 4), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_ties_ascend_in_position_then_degree(num_nodes: int, levels: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = rng.integers(0, levels, (num_nodes, 2)).astype(np.float32)
    csr = make_csr(random_edges(num_nodes, 0.3, rng), num_nodes)
    for column, order in zip(positions.T, sequence(positions, csr).order, strict=True):
        keys = list(zip(column[order], csr.degrees()[order], strict=True))
        assert keys == sorted(keys)


@given(num_nodes=st.integers(8, 40), seed=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_relabelling_the_graph_relabels_the_sequence(num_nodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = random_edges(num_nodes, 0.25, rng)
    positions = rng.integers(0, 3, (num_nodes, 2)).astype(np.float64)
    relabel = rng.permutation(num_nodes)
    moved = np.empty_like(positions)
    moved[relabel] = positions
    order = sequence(positions, make_csr(edges, num_nodes)).order
    other = sequence(moved, make_csr(relabel[edges], num_nodes)).order

    # Nodes that refinement cannot tell apart may change places, but only with one another.
    adjacency = np.zeros((num_nodes, num_nodes), dtype=bool)
    adjacency[edges[0], edges[1]] = True
    classes = refine_by_sets(adjacency, positions)
    np.testing.assert_array_equal(classes[order], classes[np.argsort(relabel)[other]])


def refine_by_sets(adjacency: NDArray[np.bool_], positions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Colour refinement without hashing: classes numbered by what they have seen."""
    signatures: list[object] = [
        (*row, int(near.sum())) for row, near in zip(positions, adjacency, strict=True)
    ]
    for _ in range(len(adjacency)):
        numbers = {signature: number for number, signature in enumerate(sorted(set(signatures), key=repr))}
        classes = [numbers[signature] for signature in signatures]
        signatures = [
            (classes[node], *sorted(classes[other] for other in np.nonzero(adjacency[node])[0]))
            for node in range(len(adjacency))
        ]
    return np.array(classes)


def test_refinement_reaches_far_nodes(path_graph: NDArray[np.int64]) -> None:
    # A long tail on one side: only refinement over many hops tells the middle of the path from its mirror.
    pairs = [(i, i + 1) for i in range(19)] + [(0, 20), (0, 21)]
    edges = np.array(pairs + [(v, u) for u, v in pairs]).T
    order = sequence(np.zeros((22, 1)), make_csr(edges, 22)).order[0]
    relabel = np.random.default_rng(1).permutation(22)
    other = sequence(np.zeros((22, 1)), make_csr(relabel[edges], 22)).order[0]
    twins = {20, 21}
    back = np.argsort(relabel)[other]
    assert [x for x in order if x not in twins] == [x for x in back if x not in twins]


def test_equal_positions_share_a_number() -> None:
    positions = np.array([[0.0, 2.0], [-0.0, 1.0], [-1.0, 2.0]])
    np.testing.assert_array_equal(dense_ranks(positions, 3), [[1, 1, 0], [1, 0, 1]])


def test_from_order_inverts() -> None:
    sequences = from_order(np.array([[2, 0, 1]]))
    np.testing.assert_array_equal(sequences.rank, [[1, 2, 0]])


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        (np.zeros((4, 1)), "a row for each of the 5 nodes"),
        (np.full((5, 1), np.nan), "to be finite"),
    ],
)
def test_refuses_bad_positions(
    positions: NDArray[np.float64], message: str, path_graph: NDArray[np.int64]
) -> None:
    with pytest.raises(ValueError, match=message):
        sequence(positions, make_csr(path_graph, 5))
