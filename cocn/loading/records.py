"""The distinct nodes of a batch of windows."""

# mypy: allow-untyped-decorators, allow-untyped-defs

import numpy as np
from numba import njit
from numpy.typing import NDArray


def compact(ids: NDArray[np.int32], index: NDArray[np.int64]) -> NDArray[np.int32]:
    """Number the distinct ids in order of appearance: `ids = distinct[index]`; fills `index`.

    A hash table of twice the batch size is faster than sorting, and does not grow with the graph.
    """
    capacity = 1 << max(4, int(2 * ids.size - 1).bit_length())
    distinct = np.empty(ids.size, dtype=np.int32)
    count = _compact(ids.reshape(-1), index.reshape(-1), distinct, np.full(capacity, -1, dtype=np.int32))
    return distinct[:count]


@njit(cache=True, nogil=True)
def _compact(ids, index, distinct, table):
    mask = table.size - 1
    count = 0
    for place in range(ids.size):
        key = ids[place]
        slot = (np.int64(key) * np.int64(0x9E3779B1) >> np.int64(7)) & mask
        while table[slot] >= 0 and distinct[table[slot]] != key:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = count
            distinct[count] = key
            count += 1
        index[place] = table[slot]
    return count
