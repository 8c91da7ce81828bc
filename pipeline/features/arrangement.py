"""The arrangement of a collection's graphs, computed once: order of ties, symmetries, structural positions.

Finding a canonical arrangement takes a search in every graph, and structural positions need all distances
in it. Both depend on the graph only, so they are a stage of the store, and a training step only gathers them.
"""

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from cocn.graphs import STRUCTURAL_LIMIT
from cocn.positions import structural_positions
from cocn.ties import automorphism_orbits, tie_ranks
from pipeline.runtime.progress import progress
from pipeline.storage.files import list_column
from pipeline.store.arrays import CSR
from pipeline.store.graph_store import GraphStore

STAGE = "arrangement"


class ArrangementSummary(BaseModel):
    """What the manifest says about the arrangement."""

    model_config = ConfigDict(frozen=True)

    columns: int
    """Number of columns of the structural positions."""
    with_positions: int
    """Number of graphs small enough to have them."""


class _ArrangementParameters(BaseModel):
    """What determines the arrangement."""

    model_config = ConfigDict(frozen=True)

    truncate: int
    """Hops of the structural positions."""


def write_arrangement(store: GraphStore, truncate: int, *, replace: bool = False) -> bool:
    """Arrange every graph of a collection; False if that was already done.

    Args:
        store: The collection.
        truncate: Hops of the structural positions.
        replace: Replace an arrangement with other parameters instead of refusing.
    """
    with store.begin(STAGE, _ArrangementParameters(truncate=truncate), replace=replace) as stage:
        if stage.done:
            return False
        csr, features, indptr = store.csr(), store.features(), store.graph_indptr()
        place, orbit = np.empty((2, store.num_nodes), dtype=np.int32)
        positions = np.zeros((store.num_nodes, 1 + truncate), dtype=np.float32)
        with progress("arrange", len(indptr) - 1, "graphs") as bar:
            for start, stop in zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True):
                own = slice(start, stop)
                found = arrange(_edges_of(csr, start, stop), features[own], truncate)
                place[own], orbit[own], positions[own] = found
                bar.advance(1)
        stage.write_table("places.arrow", pa.table({"place": place, "orbit": orbit}))
        stage.write_table("positions.arrow", pa.table({"positions": list_column(positions)}))
        sizes = np.diff(indptr)
        small = int((sizes <= STRUCTURAL_LIMIT).sum())
        stage.commit(ArrangementSummary(columns=1 + truncate, with_positions=small))
    return True


def arrange(
    edges: torch.Tensor, features: NDArray[np.float32], truncate: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Rank of each node of one graph, the first node it can be exchanged with, and its positions.

    Graphs that are too large to compute all distances have positions of zero.
    """
    size = len(features)
    colours = torch.from_numpy(np.array(features)).double() if features.shape[1] else None
    place = tie_ranks(edges, size, colours)
    orbit = automorphism_orbits(edges, size, colours)
    positions = np.zeros((size, 1 + truncate), dtype=np.float32)
    if size <= STRUCTURAL_LIMIT:
        # In arranged order: a dense solve rounds differently for every numbering.
        arranged = structural_positions(place[edges], size, truncate)
        positions = arranged[place].float().numpy()
    return place.numpy(), orbit.numpy(), positions


def _edges_of(csr: CSR, start: int, stop: int) -> torch.Tensor:
    """Edges [2, m] of the graph whose nodes are `start` … `stop` − 1, numbered from 0."""
    indptr = csr.indptr[start : stop + 1]
    sources = np.repeat(np.arange(stop - start), np.diff(indptr))
    targets = csr.indices[indptr[0] : indptr[-1]].astype(np.int64) - start
    return torch.from_numpy(np.stack([sources, targets]))
