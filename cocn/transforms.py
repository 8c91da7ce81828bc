"""Transforms of PyG datasets. They are plain callables, so that importing the models does not load PyG."""

from __future__ import annotations

import copy
from typing import Any

from cocn.ties import Ties, automorphism_orbits, colour_rows, tie_ranks


class ArrangeTies:
    """Store the arrangement of a graph's nodes as ``tie_rank`` and its symmetries as ``tie_orbit``.

    Finding them takes a search in every graph. Passed to a dataset as ``pre_transform``, it runs once, and
    the batches of the dataset carry the result to the models.

    Args:
        ties: as in :func:`cocn.ties.tie_ranks`.
    """

    def __init__(self, ties: Ties = "auto") -> None:
        self.ties = ties

    def __call__(self, data: Any) -> Any:
        """A shallow copy of a ``Data`` with ``tie_rank`` [T] and ``tie_orbit`` [T]."""
        arranged = copy.copy(data)
        edge_attr = getattr(data, "edge_attr", None)
        if edge_attr is None:
            edge_attr = getattr(data, "edge_weight", None)
        colours = colour_rows(data.x, getattr(data, "positions", None))
        parts = (data.edge_index, data.num_nodes, colours, edge_attr, self.ties)
        arranged.tie_rank, arranged.tie_orbit = tie_ranks(*parts), automorphism_orbits(*parts)
        return arranged

    def __repr__(self) -> str:
        return f"{type(self).__name__}(ties={self.ties!r})"
