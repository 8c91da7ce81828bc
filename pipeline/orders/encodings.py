"""Positions to compare r_A with: Laplacian eigenvectors (LapPE) and random walks (RWPE).

Legend: n nodes, C columns.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.store.arrays import CSR
from pipeline.store.cleaning import component_labels

Columns = NDArray[np.float64]

# Eigenvectors are only used for an order, for which three digits are plenty.
_EIGEN_TOLERANCE = 1e-3
_EIGEN_ITERATIONS = 2000
# Exact return probabilities take n×m multiplications per step; beyond this many they are estimated.
EXACT_WALK_PRODUCTS = 2 * 10**10
_WALK_PROBES = 256
_WALK_BLOCK = 512


def laplacian_columns(csr: CSR, count: int, *, seed: int = 0) -> Columns:
    """Eigenvectors of the smallest positive eigenvalues of the normalised Laplacian. [n, C]

    They are those of the largest component; nodes outside it are at 0. The sign of each is chosen so that its
    largest entry is positive. Each is divided by the square roots of the degrees: an eigenvector itself
    grows with them, and would sort the ends of a path into its middle.

    Args:
        csr: The graph, both directions of every edge.
        count: C; if the component has too few nodes, the remaining columns are zero.
        seed: Seed of the start vector.

    Raises:
        UserError: If the eigenvectors do not converge.
    """
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    columns = np.zeros((csr.num_nodes, count))
    nodes = _largest_component(csr)
    wanted = min(count, len(nodes) - 2)
    if wanted < 1:
        return columns
    matrix = _normalized_adjacency(csr)[nodes][:, nodes]
    start = np.random.default_rng(seed).normal(size=len(nodes))
    try:
        values, vectors = eigsh(
            matrix, k=wanted + 1, which="LA", v0=start, tol=_EIGEN_TOLERANCE, maxiter=_EIGEN_ITERATIONS
        )
    except ArpackNoConvergence as error:
        raise UserError(
            f"Expected {wanted + 1} eigenvectors within {_EIGEN_ITERATIONS} iterations "
            f"(got {len(error.eigenvalues)}): choose another order"
        ) from error
    # The largest eigenvalue belongs to the trivial vector, the square roots of the degrees.
    vectors = vectors[:, np.argsort(-values, kind="stable")[1:]]
    vectors /= np.sqrt(csr.degrees()[nodes])[:, None]
    largest = np.abs(vectors).argmax(axis=0)
    columns[nodes, :wanted] = vectors * np.sign(vectors[largest, np.arange(wanted)])
    return columns


def random_walk_columns(csr: CSR, count: int, *, seed: int = 0) -> Columns:
    """Probabilities that a random walk is back at its start after 2, 3, …, C + 1 steps. [n, C]

    (A walk is never back after one step.) On large graphs they are estimated from random signs z, as the
    mean of z ∘ Pᵏz over 256 of them.

    Args:
        csr: The graph, both directions of every edge.
        count: C.
        seed: Seed of the signs.
    """
    steps = count + 1
    walk = _transition_matrix(csr)
    if csr.num_nodes * max(1, csr.num_edges) * steps <= EXACT_WALK_PRODUCTS:
        blocks = range(0, csr.num_nodes, _WALK_BLOCK)
        return np.concatenate([_exact_returns(walk, start, steps) for start in blocks])
    signs = np.random.default_rng(seed)
    total = np.zeros((csr.num_nodes, steps - 1))
    for _ in range(_WALK_PROBES):
        probe = signs.choice([-1.0, 1.0], size=csr.num_nodes)
        current = walk @ probe
        for step in range(steps - 1):
            current = walk @ current
            total[:, step] += probe * current
    return total / _WALK_PROBES


def _largest_component(csr: CSR) -> NDArray[np.int64]:
    """The nodes of the largest component, ascending."""
    _, labels = component_labels(csr)
    return np.flatnonzero(labels == np.bincount(labels).argmax())


def _normalized_adjacency(csr: CSR) -> Any:
    """D^-½ A D^-½ as a scipy matrix; isolated nodes have empty rows."""
    from scipy.sparse import csr_matrix

    scale = 1 / np.sqrt(np.maximum(csr.degrees(), 1))
    values = np.repeat(scale, csr.degrees()) * scale[csr.indices]
    return csr_matrix((values, csr.indices, csr.indptr), shape=(csr.num_nodes, csr.num_nodes))


def _transition_matrix(csr: CSR) -> Any:
    """P = D^-1 A as a scipy matrix."""
    from scipy.sparse import csr_matrix

    values = np.repeat(1 / np.maximum(csr.degrees(), 1), csr.degrees())
    return csr_matrix((values, csr.indices, csr.indptr), shape=(csr.num_nodes, csr.num_nodes))


def _exact_returns(walk: Any, start: int, steps: int) -> Columns:
    rows = walk[start : start + _WALK_BLOCK].toarray()
    returns = np.empty((len(rows), steps - 1))
    place = np.arange(len(rows))
    for step in range(steps - 1):
        rows = rows @ walk
        returns[:, step] = rows[place, start + place]
    return returns
