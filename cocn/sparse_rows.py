"""A sparse matrix in rows (CSR) times dense columns: the product that dominates message passing.

On CPUs with numba, a compiled loop in as many threads as torch uses; otherwise torch's own sparse product.

Legend: N rows, M columns, E entries, C channels.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Entries plus rows per block: enough work to outweigh handing it to a thread.
BLOCK_WORK = 1 << 15
#: Types that numba compiles for; anything else is computed in float32.
COMPILED_TYPES = (torch.float32, torch.float64)


class SparseRows:
    """A sparse matrix [N, M] in CSR; not differentiable by itself.

    Args:
        indptr: [N + 1] where the entries of each row start.
        indices: [E] column of each entry.
        values: [E] value of each entry.
        num_columns: M.
    """

    def __init__(self, indptr: Tensor, indices: Tensor, values: Tensor, num_columns: int) -> None:
        self.indptr = indptr
        self.indices = _narrow(indices, num_columns)
        self.values = values
        self.num_columns = num_columns
        self._values_by_type: dict[torch.dtype, Tensor] = {values.dtype: values}
        self._blocks: list[range] | None = None

    @property
    def num_rows(self) -> int:
        return self.indptr.numel() - 1

    def to(self, device: torch.device | str) -> SparseRows:
        indptr, indices, values = (each.to(device) for each in (self.indptr, self.indices, self.values))
        return SparseRows(indptr, indices, values, self.num_columns)

    def transpose(self) -> SparseRows:
        """The matrix [M, N] with the same entries, again in rows."""
        order = torch.argsort(self.indices, stable=True)
        counts = torch.bincount(self.indices, minlength=self.num_columns)
        rows = torch.repeat_interleave(self.indptr.diff())
        return SparseRows(_starts(counts), rows[order], self.values[order], self.num_rows)

    def multiply(self, x_MC: Tensor) -> Tensor:
        """The product [N, C], in the type of x; no autograd."""
        if x_MC.dim() != 2 or x_MC.size(0) != self.num_columns:
            raise ValueError(
                f"Expected 'x' to be of shape [{self.num_columns}, channels] (got {list(x_MC.shape)})"
            )
        if x_MC.dtype not in COMPILED_TYPES:
            return self.multiply(x_MC.float()).to(x_MC.dtype)
        if x_MC.device.type == "cpu" and has_compiler():
            return self._multiply_compiled(x_MC)
        return self._multiply_torch(x_MC)

    def _multiply_compiled(self, x_MC: Tensor) -> Tensor:
        from cocn.row_kernels import multiply_rows

        out = x_MC.new_empty(self.num_rows, x_MC.size(1))
        indptr, indices, x, y = (_as_array(each) for each in (self.indptr, self.indices, x_MC, out))
        values = _as_array(self._values_as(x_MC.dtype))
        over_blocks(
            lambda rows: multiply_rows(indptr, indices, values, x, y, rows.start, rows.stop),
            self._row_blocks(),
        )
        return out

    def _multiply_torch(self, x_MC: Tensor) -> Tensor:
        with warnings.catch_warnings(), torch.autocast(x_MC.device.type, enabled=False):
            # torch announces once per process that its CSR layout is in beta.
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            matrix = torch.sparse_csr_tensor(
                self.indptr.to(self.indices.dtype),
                self.indices,
                self._values_as(x_MC.dtype),
                (self.num_rows, self.num_columns),
                check_invariants=False,
            )
            return matrix @ x_MC.detach().contiguous()

    def _values_as(self, dtype: torch.dtype) -> Tensor:
        if dtype not in self._values_by_type:
            self._values_by_type[dtype] = self.values.to(dtype)
        return self._values_by_type[dtype]

    def _row_blocks(self) -> list[range]:
        if self._blocks is None:
            self._blocks = balanced_blocks(self.indptr)
        return self._blocks


class Operator(Protocol):
    """A sparse matrix and its transpose, which the gradient needs."""

    @property
    def rows(self) -> SparseRows: ...

    @property
    def transposed(self) -> SparseRows: ...


def multiply(x_MC: Tensor, operator: Operator) -> Tensor:
    """The product [N, C] of an operator with x, differentiable in x."""
    product: Tensor = _Multiply.apply(x_MC, operator)
    return product


class _Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, operator):  # type: ignore[no-untyped-def]
        ctx.operator = operator
        return operator.rows.multiply(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return ctx.operator.transposed.multiply(grad), None


def sparse_rows(row: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> SparseRows:
    """Build the rows from entries in any order; entries of the same cell are kept separately and add up."""
    order = torch.argsort(row, stable=True)
    counts = torch.bincount(row, minlength=shape[0])
    return SparseRows(_starts(counts), column[order], values[order], shape[1])


def balanced_blocks(indptr: Tensor) -> list[range]:
    """Consecutive ranges of rows with about equal work, however uneven the rows are."""
    num_rows = indptr.numel() - 1
    work = indptr + torch.arange(num_rows + 1, device=indptr.device)
    marks = torch.arange(0, int(work[-1]) if num_rows else 0, BLOCK_WORK, device=indptr.device)
    bounds = [*torch.searchsorted(work, marks).unique().tolist(), num_rows]
    return [range(start, stop) for start, stop in pairwise(bounds) if start < stop]


def over_blocks(work: Callable[[range], None], blocks: list[range]) -> None:
    """Call `work`, which releases the interpreter lock, on every block, in as many threads as torch uses."""
    threads = min(torch.get_num_threads(), len(blocks))
    if threads <= 1:
        for block in blocks:
            work(block)
    else:
        list(_threads(torch.get_num_threads(), os.getpid()).map(work, blocks))


@cache
def _threads(count: int, process: int) -> ThreadPoolExecutor:
    """One pool per process, since threads do not survive a fork."""
    return ThreadPoolExecutor(count, thread_name_prefix=f"rows-{process}")


@cache
def has_compiler() -> bool:
    """Whether numba, which compiles the loops for CPUs, is installed."""
    return importlib.util.find_spec("numba") is not None


def _as_array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()


def _narrow(indices: Tensor, num_columns: int) -> Tensor:
    """Halve the bytes per entry wherever 32 bits can number the columns."""
    return indices.to(torch.int32 if num_columns < 2**31 else torch.int64).contiguous()


def _starts(counts: Tensor) -> Tensor:
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
