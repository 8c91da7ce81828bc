"""The order of an epoch's rows and how it is cut into batches, from `cocn.loading.batching`."""

from cocn.loading.batching import BLOCK_ROWS, POOL_BLOCKS, BatchPlan, EpochOrder

__all__ = ["BLOCK_ROWS", "POOL_BLOCKS", "BatchPlan", "EpochOrder"]
