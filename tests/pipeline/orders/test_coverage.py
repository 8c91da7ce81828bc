"""Coverage and density against counting by hand and on the dense matrix."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pipeline.orders.coverage import adjacency_density, measure_coverage
from pipeline.orders.sequences import from_order
from pipeline.store.arrays import CSR


def make_csr(adjacency: NDArray[np.bool_]) -> CSR:
    indptr = np.concatenate([[0], np.cumsum(adjacency.sum(axis=1))]).astype(np.int64)
    return CSR(indptr, np.nonzero(adjacency)[1].astype(np.int32))


def random_graph(num_nodes: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    adjacency = rng.random((num_nodes, num_nodes)) < 0.3
    return adjacency | adjacency.T


@given(num_nodes=st.integers(4, 25), heads=st.integers(1, 3), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_equals_counting_pairs(num_nodes: int, heads: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, num_nodes + 1))
    adjacency = random_graph(num_nodes, rng)
    sequences = from_order(np.stack([rng.permutation(num_nodes) for _ in range(heads)]))
    coverage = measure_coverage(sequences, make_csr(adjacency), length)

    source, target = np.nonzero(adjacency & ~np.eye(num_nodes, dtype=bool))
    ahead = (sequences.rank[:, target] - sequences.rank[:, source]) % num_nodes
    near = (ahead < length) | (num_nodes - ahead < length)
    total = max(1, source.size)
    for head in range(heads):
        assert coverage.heads[head] == near[head].sum() / total
        assert coverage.union[head] == near[: head + 1].any(axis=0).sum() / total
        assert coverage.own[head] == (ahead[: head + 1] < length).any(axis=0).sum() / total


def test_a_ring_in_its_own_order_is_covered() -> None:
    ring = np.roll(np.eye(12, dtype=bool), 1, axis=1)
    coverage = measure_coverage(from_order(np.arange(12)[None]), make_csr(ring | ring.T), 2)
    assert coverage.heads == coverage.union == (1.0,)
    assert coverage.own == (0.5,)
    assert coverage.chance == pytest.approx(2 / 11)


def test_density_is_the_permuted_matrix() -> None:
    rng = np.random.default_rng(0)
    adjacency = random_graph(12, rng)
    sequences = from_order(rng.permutation(12)[None])
    permuted = adjacency[np.ix_(sequences.order[0], sequences.order[0])]
    csr = make_csr(adjacency)
    np.testing.assert_array_equal(adjacency_density(sequences.rank[0], csr, 12), permuted)
    binned = permuted.reshape(3, 4, 3, 4).sum(axis=(1, 3))
    np.testing.assert_array_equal(adjacency_density(sequences.rank[0], csr, 3), binned)
