"""The orders stage: one column of positions per head, and the coverage they reach.

| family | orders |
|---|---|
| `window` | pairs of an order and its reverse, each built for the edges that no earlier pair covers |
| `profile` | r_A, then random mixtures of r_A, the distance profile and distances to landmarks |
| `lappe` | eigenvectors of the Laplacian |
| `rwpe` | return probabilities of random walks |
| `rcm` | like `window`, by reverse Cuthill–McKee |

Legend: n nodes, H heads, b segment length.
"""

from typing import Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from cocn.loading.covering import cuthill_mckee_order, residual_orders, window_order
from pipeline.orders.coverage import Coverage, measure_coverage
from pipeline.orders.encodings import laplacian_columns, random_walk_columns
from pipeline.orders.sequences import head_columns, sequence
from pipeline.positions.stage import STAGE as POSITIONS
from pipeline.storage.files import list_column
from pipeline.store.arrays import CSR
from pipeline.store.graph_store import GraphStore

STAGE = "orders"
_FILE = "heads.arrow"
Family = Literal["window", "profile", "lappe", "rwpe", "rcm"]
Columns = NDArray[np.float64]


class OrderParameters(BaseModel):
    """What determines the files of the stage."""

    model_config = ConfigDict(frozen=True)

    family: Family = "window"
    heads: int = 8
    length: int = 8
    seed: int = 0


class OrderSummary(BaseModel):
    """What the manifest says about the orders."""

    model_config = ConfigDict(frozen=True)

    coverage: Coverage
    coverage_of_r_A: float
    """Coverage of r_A alone, for comparison."""


def head_positions(
    store: GraphStore, heads: int, *, length: int = 8, family: Family = "window", seed: int = 0
) -> Columns:
    """Positions of the nodes, one column per head: the stored ones if they match, else computed. [n, H]

    Args:
        store: A store with positions.
        heads: H.
        length: b, the segment length at which coverage is measured.
        family: The family of orders; see the table above.
        seed: Seed of mixtures and start vectors.
    """
    parameters = OrderParameters(family=family, heads=heads, length=length, seed=seed)
    entry = store.manifest.stages.get(STAGE)
    if entry is not None and entry.parameters == parameters.model_dump(mode="json"):
        return cast(Columns, store.array(f"{STAGE}/{_FILE}", "positions"))
    return _compute_heads(store, store.undirected_csr(), parameters)


def write_orders(store: GraphStore, parameters: OrderParameters, *, replace: bool = False) -> bool:
    """Compute the positions of every head, measure their coverage, and add both to the store.

    Returns:
        Whether there was anything to do.
    """
    with store.begin(STAGE, parameters, requires=(POSITIONS,), replace=replace) as stage:
        if stage.done:
            return False
        csr = store.undirected_csr()
        columns = _compute_heads(store, csr, parameters)
        stage.write_table(_FILE, pa.table({"positions": list_column(columns)}))
        stage.commit(_describe_coverage(store, csr, columns, parameters.length))
    return True


def _compute_heads(store: GraphStore, csr: CSR, parameters: OrderParameters) -> Columns:
    """Positions of every head by one of the families. [n, H]"""
    heads, seed = parameters.heads, parameters.seed
    if parameters.family == "lappe":
        return laplacian_columns(csr, heads, seed=seed)
    if parameters.family == "rwpe":
        return random_walk_columns(csr, heads, seed=seed)
    if parameters.family == "profile":
        return head_columns(store.positions(), heads, seed)
    make = window_order if parameters.family == "window" else cuthill_mckee_order
    orders = residual_orders(csr, store.approximate_positions(), heads, parameters.length, make)
    return orders.rank.astype(np.float64)


def _describe_coverage(store: GraphStore, csr: CSR, columns: Columns, length: int) -> OrderSummary:
    """Coverage of the heads, and of r_A alone for comparison."""
    heads = measure_coverage(sequence(columns, csr), csr, length)
    alone = measure_coverage(sequence(store.approximate_positions()[:, None], csr), csr, length)
    return OrderSummary(coverage=heads, coverage_of_r_A=alone.heads[0])
