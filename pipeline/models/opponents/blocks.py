"""What opponents that read rows know of a node: its features, averages hop by hop, degrees, labels."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.models.opponents.operators import Kind, make_matrix

Floats = NDArray[np.float32]
Content = Literal["features", "degrees", "labels"]


@dataclass(frozen=True)
class Block:
    """Some columns of every node.

    Attributes:
        content: What is read.
        columns: How many columns.
        kind: The matrix that carries it from node to node.
        hops: How often.
    """

    content: Content
    columns: int
    kind: Kind = "mean"
    hops: int = 0


def compute_blocks(
    blocks: tuple[Block, ...], x: Floats, adjacency: Any, labels: Floats | None
) -> list[Floats]:
    """The blocks of all nodes, each [N, D].

    Args:
        blocks: Which; hops of the same content and kind are taken from one another.
        x: [N, D] features.
        adjacency: [N, N] SciPy matrix of ones.
        labels: [N, C] one-hot classes of the training nodes, zeros elsewhere; None where no block asks.
    """
    found: dict[Block, Floats] = {}
    for content, kind in dict.fromkeys((block.content, block.kind) for block in blocks):
        asked = [block for block in blocks if (block.content, block.kind) == (content, kind)]
        levels = _levels(content, kind, max(block.hops for block in asked), x, adjacency, labels)
        wanted = {block.hops: block for block in asked}
        for hops, values in enumerate(levels):
            if hops in wanted:
                found[wanted[hops]] = values
    return [found[block] for block in blocks]


def _levels(
    content: Content, kind: Kind, hops: int, x: Floats, adjacency: Any, labels: Floats | None
) -> Iterator[Floats]:
    """The content after 0, 1, … `hops` steps."""
    if content == "degrees":
        yield _log_degrees(adjacency)
        return
    values = x if content == "features" else labels
    if values is None:
        raise ValueError("Expected labels for a block of labels (got none)")
    start = values
    yield start
    if hops:
        matrix = make_matrix(adjacency, kind)
    for hop in range(1, hops + 1):
        values = np.asarray(matrix @ values, dtype=np.float32)
        # A training node must not find its own class two steps away and back.
        yield values if content == "features" else values - _returning(matrix, hop)[:, None] * start


def _returning(matrix: Any, hops: int) -> Floats:
    """Diagonal of the power of a matrix without a diagonal: what comes back to a node after 1 or 2 steps."""
    if hops == 1:
        return np.zeros(matrix.shape[0], dtype=np.float32)
    if hops > 2:
        raise ValueError(f"Expected labels of at most 2 hops (got {hops})")
    return np.asarray(matrix.multiply(matrix.T).sum(1), dtype=np.float32).ravel()


def _log_degrees(adjacency: Any) -> Floats:
    """[N, 3] logarithms of the degrees: of all neighbours, of those pointed at, of those that point here."""
    undirected = adjacency.maximum(adjacency.T)
    degrees = [np.asarray(matrix.sum(1)).ravel() for matrix in (undirected, adjacency, adjacency.T)]
    logarithms: Floats = np.log1p(np.stack(degrees, axis=1)).astype(np.float32)
    return logarithms
