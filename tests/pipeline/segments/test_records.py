"""Sources: tables that fit their graph, distinct ids of a batch."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocn.loading.records import compact
from pipeline.orders.sequences import from_order
from pipeline.segments.records import MemorySource, NodeTable
from pipeline.segments.windows import build_segments
from pipeline.store.arrays import CSR


def test_gathers_columns_side_by_side() -> None:
    first, second = (np.random.default_rng(seed).random((6, 2), dtype=np.float32) for seed in (0, 1))
    out = np.empty((3, 4), dtype=np.float32)
    NodeTable((first, second)).gather(np.array([5, 0, 5]), out)
    np.testing.assert_array_equal(out, np.concatenate([first, second], axis=1)[[5, 0, 5]])
    single = np.empty((2, 2), dtype=np.float32)
    NodeTable((first,)).gather(np.array([3, 1]), single)
    np.testing.assert_array_equal(single, first[[3, 1]])


def test_refuses_a_table_of_another_graph() -> None:
    csr = CSR(np.zeros(8, dtype=np.int64), np.zeros(0, dtype=np.int32))
    segments = build_segments(from_order(np.arange(7)[None]), csr, 2)
    table = NodeTable((np.zeros((5, 1), dtype=np.float32),))
    with pytest.raises(ValueError, match=r"a row for each of the 7 nodes \(got 5\)"):
        MemorySource(segments, np.arange(3), np.zeros(7, dtype=np.int64), table)
    with pytest.raises(ValueError, match="arrays with equal numbers of rows"):
        NodeTable((np.zeros((5, 1), dtype=np.float32), np.zeros((4, 1), dtype=np.float32)))


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=300))
@settings(max_examples=50, deadline=None)
def test_compact_numbers_distinct_ids(ids: list[int]) -> None:
    values = np.array(ids + ids[:5], dtype=np.int32)
    index = np.empty(values.shape, dtype=np.int64)
    distinct = compact(values, index)
    np.testing.assert_array_equal(distinct[index], values)
    assert distinct.tolist() == list(dict.fromkeys(values.tolist()))
