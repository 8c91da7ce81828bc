"""What models read of a store: tables for mini-batches, or the whole graph."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

import cocn
from cocn import GraphBatch
from cocn.aggregation import MeanAggregator
from cocn.mixing import Surroundings, WindowTaps
from cocn.modern import BlockGraph
from pipeline.config.loading import Config
from pipeline.features.blocks import open_block
from pipeline.features.propagation import open_propagated
from pipeline.features.selection import block_widths
from pipeline.models.networks import position_source
from pipeline.orders.sequences import dense_ranks
from pipeline.orders.stage import head_positions
from pipeline.segments.records import NodeTable, gather_columns
from pipeline.store.arrays import CSR, SPLIT_NAMES
from pipeline.store.cleaning import edge_sources, entry_rows
from pipeline.store.graph_store import GraphStore
from pipeline.training.needs import Needs, resolve_needs


def part_code(part: str) -> int:
    """The number that a split uses for a part; −1 for the nodes in none."""
    return SPLIT_NAMES.index(part) if part in SPLIT_NAMES else -1


def part_of_rows(store: GraphStore, split: int) -> NDArray[np.int8]:
    """Part of every node, or graph of a collection; −1 for those in none, which is all without splits."""
    return store.split(split) if store.num_splits else np.full(store.num_rows, -1, dtype=np.int8)


def read_node_table(store: GraphStore, needs: Needs) -> NodeTable:
    """What a segment model reads of nodes: features, propagated features, and inputs of position
    regression."""
    if needs.blocks:
        blocks = [open_block(store, block) for block in needs.blocks]
        windows = [] if needs.window_block is None else [open_block(store, needs.window_block)]
        return NodeTable(windows, None, store.edge_values() if windows else None, blocks)
    features: list[NDArray[np.floating]] = [store.features()]
    features += [open_propagated(store, 1 + step) for step in range(needs.feature_hops)]
    table = NodeTable(features, edge_values=store.edge_values())
    if needs.positions == "explicit":
        return replace(table, positions=open_propagated(store, needs.position_hops))
    if needs.positions == "implicit":
        return replace(table, positions=store.positions())
    return table


def open_graph(store: GraphStore, config: Config) -> GraphBatch | BlockGraph:
    """The whole graph as the model of a configuration reads it."""
    needs = resolve_needs(config, store)
    return read_block_graph(store, config, needs) if needs.blocks else read_graph(store, config)


def read_block_graph(store: GraphStore, config: Config, needs: Needs) -> BlockGraph:
    """The whole graph as a modern model reads it: input blocks, averages over neighbours, and windows."""
    x = np.empty((store.num_nodes, sum(block_widths(store, needs.blocks).values())), dtype=np.float32)
    gather_columns([open_block(store, block) for block in needs.blocks], np.arange(store.num_nodes), x)
    csr = store.csr()
    directions = [store.undirected_csr()] if csr.ways is None else [csr.one_way(1), csr.one_way(2)]
    means = tuple(
        MeanAggregator(torch.tensor(each.indptr), torch.tensor(each.indices), each.num_nodes)
        for each in directions
    )
    taps = ordered = None
    if needs.window_block is not None:
        values = torch.from_numpy(open_block(store, needs.window_block).astype(np.float32))
        ordered = read_graph(store, config, features=values)
    elif config.model.windows:
        places = torch.from_numpy(_places(store, config).T.astype(np.int64))
        taps = WindowTaps(_edge_index(store.undirected_csr()), places, config.model.kernel_size)
    return BlockGraph(torch.from_numpy(x), Surroundings(means, taps), ordered)


def _edge_index(csr: CSR) -> torch.Tensor:
    return torch.from_numpy(np.stack([edge_sources(csr).astype(np.int64), csr.indices.astype(np.int64)]))


def _places(store: GraphStore, config: Config) -> NDArray[np.int32]:
    """Rank of every node in the store's order of every head, [H, n]; tied nodes share one."""
    settings = config.segments
    columns = head_positions(
        store, config.model.heads, length=settings.length, family=config.positions.order, seed=settings.seed
    )
    return dense_ranks(np.asarray(columns), store.num_nodes)


def read_graph(
    store: GraphStore, config: Config, visible: CSR | None = None, features: torch.Tensor | None = None
) -> GraphBatch:
    """The whole graph, arranged once for every step.

    Args:
        store: The graph.
        config: The configuration.
        visible: The edges to read instead of all, in link prediction. The store's positions depend on all
            edges, so those of a small graph are recomputed.
        features: Features of the nodes in place of the store's.
    """
    csr = store.csr() if visible is None else visible
    edge_index = _edge_index(csr)
    positions = None
    source = position_source(config.model)
    if source == "fixed":
        # Only the order matters, and ranks are exact in the type of the features.
        positions = torch.from_numpy(_places(store, config).T.astype(np.float32))
    elif source == "implicit" and visible is None:
        positions = torch.from_numpy(np.array(store.positions()))
    x = features
    if x is None and store.manifest.num_features:
        x = torch.from_numpy(np.array(store.features()))
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
