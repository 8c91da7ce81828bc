"""Every row once per epoch, cut the same way for any number of ranks."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cocn.loading.batching import BLOCK_ROWS, POOL_BLOCKS, BatchPlan, EpochOrder

POOL_ROWS = BLOCK_ROWS * POOL_BLOCKS


@given(num_rows=st.integers(1, 3000), batch_size=st.integers(1, 500), world_size=st.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_shares_tile_the_epoch(num_rows: int, batch_size: int, world_size: int) -> None:
    assume(num_rows // -(-num_rows // batch_size) >= world_size)
    plan = BatchPlan(num_rows, batch_size, world_size)
    steps = range(plan.num_steps)
    shares = [plan.share(step, rank) for step in steps for rank in range(world_size)]
    assert shares[0][0] == 0
    assert shares[-1][1] == num_rows
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(shares))
    assert all(start < stop for start, stop in shares)
    sizes = {plan.rows(step) for step in steps}
    assert max(sizes) <= batch_size
    assert max(sizes) - min(sizes) <= 1
    assert all(plan.step_at(plan.start(step)) == step for step in [*steps, plan.num_steps])


@pytest.mark.parametrize("num_rows", [1, 255, 256, 1000, POOL_ROWS, POOL_ROWS + 1, 3 * POOL_ROWS - 7])
def test_order_is_a_permutation_read_in_any_pieces(num_rows: int) -> None:
    whole = EpochOrder(num_rows, seed=3, epoch=5, shuffle=True).rows(0, num_rows)
    np.testing.assert_array_equal(np.sort(whole), np.arange(num_rows))
    cuts = np.sort(np.random.default_rng(0).integers(0, num_rows + 1, 9))
    bounds = [0, *cuts.tolist(), num_rows]
    order = EpochOrder(num_rows, seed=3, epoch=5, shuffle=True)
    pieces = [order.rows(start, stop) for start, stop in itertools.pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate(pieces), whole)
    late = EpochOrder(num_rows, seed=3, epoch=5, shuffle=True).rows(num_rows // 2, num_rows)
    np.testing.assert_array_equal(late, whole[num_rows // 2 :])


def test_order_changes_with_seed_and_epoch() -> None:
    orders = [EpochOrder(1000, seed, epoch, True).rows(0, 1000) for seed in (0, 1) for epoch in (0, 1)]
    assert len({order.tobytes() for order in orders}) == 4


def test_a_pool_mixes_blocks_from_all_over_the_source() -> None:
    num_rows = 20 * POOL_ROWS
    first = EpochOrder(num_rows, 0, 0, True).rows(0, 1000)
    assert np.unique(first // POOL_ROWS).size > 15


def test_without_shuffling_rows_stand_in_their_order() -> None:
    np.testing.assert_array_equal(EpochOrder(9, 0, 0, False).rows(2, 6), [2, 3, 4, 5])


def test_refuses_what_it_cannot_share() -> None:
    with pytest.raises(
        ValueError, match=r"each of the 4 ranks \(got batches of 2 rows from 5 at 'batch_size' 4\)"
    ):
        BatchPlan(5, 4, 4)
    with pytest.raises(ValueError, match=r"start of a batch \(got 3\)"):
        BatchPlan(10, 5).step_at(3)
