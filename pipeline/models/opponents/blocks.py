"""What opponents that read rows know about a node: its features, averages hop by hop, degrees, stored
blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.models.opponents.operators import Kind, make_matrix

Floats = NDArray[np.float32]
#: Computed from the graph when training begins; `stored` ones are input blocks of the store.
Content = Literal["features", "degrees", "stored"]


@dataclass(frozen=True)
class Block:
    """A group of columns of every node.

    Attributes:
        content: What is read.
        columns: Number of columns.
        kind: The matrix that propagates it from node to node.
        hops: Number of propagations.
        name: The store's input block, if it is stored.
    """

    content: Content
    columns: int
    kind: Kind = "mean"
    hops: int = 0
    name: str = ""


def compute_blocks(blocks: tuple[Block, ...], x: Floats, adjacency: Any) -> list[Floats]:
    """The blocks of all nodes that are not stored, each [N, D].

    Args:
        blocks: The blocks; further hops of the same content and kind build on one another.
        x: [N, D] features.
        adjacency: [N, N] SciPy matrix of ones.
    """
    found: dict[Block, Floats] = {}
    for content, kind in dict.fromkeys((block.content, block.kind) for block in blocks):
        asked = [block for block in blocks if (block.content, block.kind) == (content, kind)]
        wanted = {block.hops: block for block in asked}
        for hops, values in enumerate(_levels(content, kind, max(wanted), x, adjacency)):
            if hops in wanted:
                found[wanted[hops]] = values
    return [found[block] for block in blocks]


def _levels(content: Content, kind: Kind, hops: int, x: Floats, adjacency: Any) -> Iterator[Floats]:
    """The content after 0, 1, … `hops` steps."""
    if content == "stored":
        raise ValueError("Expected blocks that are computed from the graph (got stored ones)")
    if content == "degrees":
        yield _log_degrees(adjacency)
        return
    yield x
    if hops:
        matrix = make_matrix(adjacency, kind)
    for _ in range(hops):
        x = np.asarray(matrix @ x, dtype=np.float32)
        yield x


def _log_degrees(adjacency: Any) -> Floats:
    """[N, 3] logarithms of the degrees: of all neighbours, outgoing ones and incoming ones."""
    undirected = adjacency.maximum(adjacency.T)
    degrees = [np.asarray(matrix.sum(1)).ravel() for matrix in (undirected, adjacency, adjacency.T)]
    logarithms: Floats = np.log1p(np.stack(degrees, axis=1)).astype(np.float32)
    return logarithms
