"""What the graph alone says about a node, as the block `structure`: logarithms, standardised.

| columns | from |
|---|---|
| degree, or degrees in and out | the store |
| distance profile | the stage `positions` |
| mean degree of the neighbours | the store |
| core number, PageRank, clustering, community size | networkit |
"""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.features.blocks import BlockParameters, row_ranges, write_block, write_rows
from pipeline.ingest.networkit_graphs import measure_structure
from pipeline.positions.stage import STAGE as POSITIONS
from pipeline.store.cleaning import edge_sources
from pipeline.store.graph_store import GraphStore
from pipeline.store.stage import Stage

STRUCTURE = "structure"


def write_structure(store: GraphStore, *, replace: bool = False) -> bool:
    """Write the block `structure`."""
    fill = partial(_fill, store)
    parameters = BlockParameters(block=STRUCTURE)
    return write_block(store, parameters, fill, "columns", requires=(POSITIONS,), replace=replace)


def _fill(store: GraphStore, stage: Stage) -> list[str]:
    ranges = row_ranges(store.num_nodes)
    if not all(stage.existing(name) for name, _ in ranges):
        columns = structure_columns(store)
        for name, (start, stop) in ranges:
            write_rows(stage, name, columns[start:stop])
    return [name for name, _ in ranges]


def structure_columns(store: GraphStore) -> NDArray[np.float32]:
    """The raw columns of every node, [n, D]."""
    csr, undirected = store.csr(), store.undirected_csr()
    degree = np.log1p(undirected.degrees())
    columns = [degree]
    if csr.ways is not None:
        columns += [np.log1p(csr.one_way(way).degrees()) for way in (1, 2)]
    columns.append(_neighbour_means(undirected.indptr, edge_sources(undirected), degree[undirected.indices]))
    # The first two counts of the profile are the node itself and its degree.
    columns += list(np.log1p(store.profile()[:, 2:]).T)
    columns += measure_structure(undirected)
    return np.stack(columns, axis=1).astype(np.float32)


def _neighbour_means(
    indptr: NDArray[np.int64], rows: NDArray[np.integer], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    sums = np.bincount(rows, weights=values, minlength=len(indptr) - 1)
    return np.asarray(sums / np.maximum(np.diff(indptr), 1))
