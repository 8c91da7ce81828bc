"""What models read of a store: tables for mini-batches, or the whole graph."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

import cocn
from cocn import GraphBatch
from pipeline.config.loading import Config
from pipeline.features.propagation import open_propagated
from pipeline.models.networks import position_source
from pipeline.orders.sequences import dense_ranks
from pipeline.orders.stage import head_positions
from pipeline.segments.records import NodeTable
from pipeline.store.arrays import CSR, SPLIT_NAMES
from pipeline.store.cleaning import edge_sources, entry_rows
from pipeline.store.graph_store import GraphStore
from pipeline.training.needs import Needs


def part_code(part: str) -> int:
    """The number that a split has for a part; −1 for the nodes in none."""
    return SPLIT_NAMES.index(part) if part in SPLIT_NAMES else -1


def part_of_rows(store: GraphStore, split: int) -> NDArray[np.int8]:
    """Part of every node, or graph of a collection; −1 for those in none, as all are without splits."""
    return store.split(split) if store.num_splits else np.full(store.num_rows, -1, dtype=np.int8)


def read_node_table(store: GraphStore, needs: Needs) -> NodeTable:
    """What a segment model reads of nodes: features, propagated ones, and what positions come from."""
    features: list[NDArray[np.float32]] = [store.features()]
    features += [open_propagated(store, 1 + step) for step in range(needs.feature_hops)]
    table = NodeTable(features, edge_values=store.edge_values())
    if needs.positions == "explicit":
        return replace(table, positions=open_propagated(store, needs.position_hops))
    if needs.positions == "implicit":
        return replace(table, positions=store.positions())
    return table


def read_graph(store: GraphStore, config: Config, visible: CSR | None = None) -> GraphBatch:
    """The whole graph, arranged once for every step.

    Args:
        store: The graph.
        config: The configuration.
        visible: The edges to read in place of all, where links are predicted. The store's positions know all
            edges, so those of a small graph are computed anew.

    """
    csr = store.csr() if visible is None else visible
    sources = np.repeat(np.arange(csr.num_nodes, dtype=np.int64), csr.degrees())
    edge_index = torch.from_numpy(np.stack([sources, csr.indices.astype(np.int64)]))
    positions = None
    source = position_source(config.model)
    if source == "fixed":
        settings = config.segments
        columns = head_positions(
            store,
            config.model.heads,
            length=settings.length,
            family=config.positions.order,
            seed=settings.seed,
        )
        # Only the order counts, and numbers of places are exact in the type of the features.
        places = dense_ranks(np.asarray(columns), csr.num_nodes)
        positions = torch.from_numpy(places.T.astype(np.float32))
    elif source == "implicit" and visible is None:
        positions = torch.from_numpy(np.array(store.positions()))
    x = torch.from_numpy(np.array(store.features())) if store.manifest.num_features else None
    values = store.edge_values()
    if values is not None and visible is not None:
        whole = store.csr()
        values = values[entry_rows(visible, edge_sources(whole), whole.indices)]
    return cocn.prepare(
        x,
        edge_index,
        None if values is None else torch.from_numpy(np.array(values)),
        positions=positions,
        num_nodes=csr.num_nodes,
        self_loops=config.model.self_loops,
        truncate=config.positions.truncate if source == "implicit" else None,
    )
