"""The order of an epoch's rows and its cut into batches, as `cocn.loading.batching` has them."""

from cocn.loading.batching import BLOCK_ROWS, POOL_BLOCKS, BatchPlan, EpochOrder

__all__ = ["BLOCK_ROWS", "POOL_BLOCKS", "BatchPlan", "EpochOrder"]
