"""The order of an epoch's rows and how it is cut into batches, for any number of workers."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Rows are read in runs of BLOCK_ROWS, and POOL_BLOCKS runs from all over the source are shuffled together:
# reads stay long, memory stays bounded, and every epoch mixes different rows into a batch.
BLOCK_ROWS = 256
POOL_BLOCKS = 64


@dataclass(frozen=True)
class BatchPlan:
    """An epoch cut into batches whose sizes differ by at most one row, each divided among the ranks.

    The tail is spread over all batches: no row is dropped or repeated, no step is much smaller than the
    others, and every rank has rows in every step.

    Args:
        num_rows: Rows of an epoch.
        batch_size: Largest number of rows in a step, over all ranks.
        world_size: Number of ranks.

    Raises:
        ValueError: if a rank would have no rows in some step.
    """

    num_rows: int
    batch_size: int
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_rows < 1:
            raise ValueError(
                "Expected 'batch_size' and 'num_rows' to be at least 1 "
                f"(got {self.batch_size} and {self.num_rows})"
            )
        smallest = self.num_rows // self.num_steps
        if smallest < self.world_size:
            raise ValueError(
                f"Expected every batch to have a row for each of the {self.world_size} ranks (got batches of "
                f"{smallest} rows from {self.num_rows} at 'batch_size' {self.batch_size})"
            )

    @property
    def num_steps(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def start(self, step: int) -> int:
        """Rows before `step`, over all ranks."""
        return step * self.num_rows // self.num_steps

    def rows(self, step: int) -> int:
        """Rows of `step`, over all ranks."""
        return self.start(step + 1) - self.start(step)

    def share(self, step: int, rank: int) -> tuple[int, int]:
        """First and past-the-last position of a rank's rows in `step`."""
        start, rows = self.start(step), self.rows(step)
        return start + rows * rank // self.world_size, start + rows * (rank + 1) // self.world_size

    def step_at(self, position: int) -> int:
        """The step that starts at `position`.

        Raises:
            ValueError: if no step starts there.
        """
        step = -(-position * self.num_steps // self.num_rows)
        if not 0 <= position <= self.num_rows or self.start(step) != position:
            raise ValueError(f"Expected 'position' to be the start of a batch (got {position})")
        return step


class EpochOrder:
    """Which row stands at which position of an epoch.

    Args:
        num_rows: Rows of an epoch.
        seed: Decides the order, together with `epoch`.
        epoch: Number of the epoch.
        shuffle: If false, position and row are the same.
    """

    def __init__(self, num_rows: int, seed: int, epoch: int, shuffle: bool) -> None:
        self._shuffle = shuffle
        self._seeds = (seed, epoch)
        self._pool = -1
        self._pool_rows = np.empty(0, dtype=np.int64)
        if shuffle:
            self._num_rows = num_rows
            self._blocks = self._random(0).permutation(-(-num_rows // BLOCK_ROWS))
            # Only the source's last block may be short, wherever the shuffle puts it.
            sizes = np.minimum(BLOCK_ROWS, num_rows - self._blocks * BLOCK_ROWS)
            self._pool_starts = np.concatenate([[0], np.cumsum(sizes)])[::POOL_BLOCKS]

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """The rows at positions `start` … `stop` − 1."""
        if not self._shuffle:
            return np.arange(start, stop, dtype=np.int64)
        parts = []
        while start < stop:
            pool = int(np.searchsorted(self._pool_starts, start, side="right")) - 1
            rows = self._rows_of_pool(pool)
            first = start - int(self._pool_starts[pool])
            parts.append(rows[first : first + stop - start])
            start += parts[-1].size
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def _rows_of_pool(self, pool: int) -> NDArray[np.int64]:
        if pool != self._pool:
            blocks = self._blocks[pool * POOL_BLOCKS : (pool + 1) * POOL_BLOCKS]
            rows = (blocks[:, None] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(-1)
            self._pool_rows = self._random(1 + pool).permutation(rows[rows < self._num_rows])
            self._pool = pool
        return self._pool_rows

    def _random(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([*self._seeds, stream])
