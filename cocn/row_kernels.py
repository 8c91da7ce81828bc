"""Compiled loops over the rows of sparse matrices, for CPUs; imported only where numba is installed.

They release the interpreter lock, so that threads work on separate blocks of rows, and each row is summed by
one thread in the order of its entries: the result is bitwise the same for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]


@njit(cache=True, nogil=True, fastmath={"contract"})
def multiply_rows(
    indptr: Array, indices: Array, values: Array, x: Array, out: Array, start: int, stop: int
) -> None:
    """out[i] = Σ_e values[e] · x[indices[e]] for the rows from start to stop.

    Four entries at a time: their rows of x are fetched from memory together, with a single pass over out for
    all four.
    """
    channels = x.shape[1]
    for row in range(start, stop):
        for channel in range(channels):
            out[row, channel] = 0
        entry, end = indptr[row], indptr[row + 1]
        while entry + 4 <= end:
            a, b, c, d = indices[entry], indices[entry + 1], indices[entry + 2], indices[entry + 3]
            u, v, w, z = values[entry], values[entry + 1], values[entry + 2], values[entry + 3]
            for channel in range(channels):
                out[row, channel] += (
                    u * x[a, channel] + v * x[b, channel] + w * x[c, channel] + z * x[d, channel]
                )
            entry += 4
        while entry < end:
            a, u = indices[entry], values[entry]
            for channel in range(channels):
                out[row, channel] += u * x[a, channel]
            entry += 1
