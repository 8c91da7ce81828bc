"""Implicit positions in closed form from distance profiles, without ever forming an n×n matrix.

Implements: eq:approximate-im-pos-implementation

Deviation: the equation as printed has the solution r_A = n/2 for every node of every graph. The system
that orders nodes has off-diagonal entries 4d/n − 2 and the diagonal Σ_j(2d_ij/n − 1)² − 1.

With p_i = Σ_j d_ij and q_i = Σ_j d_ij², b_i = 2 q_i/n and a_i = 4 q_i/n² − 4 p_i/n + n − 1 it reads

    (a_i + 2) r_i − 2 Σ_j r_j + (4/n) (D r)_i = b_i.

Write r = s̄ + δ with s̄ the mean of r. Then D r = s̄ p + D δ, and D δ is small: because Σ_j δ_j = 0 only the
spread of d_ij over j counts, |(D δ)_i| ≤ n std_j(d_ij) std(δ), which divided by a_i ≈ n leaves a share of
4 std_j(d_ij)/n of a standard deviation. So the solution without D δ is the start, and each refinement,
which needs one more sweep for D δ, gains that factor.

Legend: n nodes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

# d is a tenth of the number of hops, as in the released experiments.
HOP_LENGTH = 0.1


@dataclass(frozen=True)
class DistanceSums:
    """p and q of every node, and how missing paths count.

    Shapes:
        first: [n], p_i = Σ_j d_ij.
        second: [n], q_i = Σ_j d_ij².
    """

    first: Vector
    second: Vector

    @property
    def num_nodes(self) -> int:
        return len(self.first)

    @property
    def diagonal(self) -> Vector:
        """a_i + 2."""
        size = self.num_nodes
        return 4 * self.second / size**2 - 4 * self.first / size + size + 1

    @property
    def contraction(self) -> float:
        """The largest error, as a share of a standard deviation, that leaving out D δ can cause."""
        size = self.num_nodes
        variance = self.second / size - (self.first / size) ** 2
        return float((4 * np.sqrt(np.maximum(variance, 0)) / self.diagonal).max())


def sum_distances(
    reached: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    *,
    num_sources: NDArray[np.int64] | int,
    depth: int,
    num_nodes: int,
) -> DistanceSums:
    """p and q from sums over the sources that were found; the others count as depth + 1 hops.

    Args:
        reached: Number of sources found from each node, not counting itself.
        first: The sum of their hops.
        second: The sum of their squared hops.
        num_sources: Sources other than the node itself; fewer than n − 1 stand for all n − 1.
        depth: Hops that were searched.
        num_nodes: n.
    """
    missing = num_sources - reached
    scale = (num_nodes - 1) / np.maximum(num_sources, 1)
    return DistanceSums(
        first=HOP_LENGTH * scale * (first + missing * (depth + 1)),
        second=HOP_LENGTH**2 * scale * (second + missing * (depth + 1) ** 2),
    )


def solve(sums: DistanceSums, deviation: Vector | None = None) -> Vector:
    """r_A, given D δ (zero by default).

    The mean s̄ enters linearly: r_i = (b_i − (4/n)(D δ)_i + s̄ (2n − 4 p_i/n)) / (a_i + 2), and the mean of
    the right side is s̄.
    """
    size = sums.num_nodes
    constant = 2 * sums.second / size
    if deviation is not None:
        constant = constant - 4 * deviation / size
    slope = (2 * size - 4 * sums.first / size) / sums.diagonal
    constant = constant / sums.diagonal
    mean = constant.mean() / (1 - slope.mean())
    return np.asarray(constant + mean * slope)


def solve_dense(distances: NDArray[np.float64]) -> Vector:
    """r_A from the n×n system itself: the reference for small graphs.

    Args:
        distances: d [n, n], already truncated and scaled.
    """
    size = len(distances)
    matrix = 4 * distances / size - 2
    diagonal = ((2 * distances / size - 1) ** 2).sum(axis=1) - 1
    np.fill_diagonal(matrix, diagonal)
    return np.asarray(np.linalg.solve(matrix, 2 * (distances**2).sum(axis=1) / size))
