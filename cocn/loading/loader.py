"""Mini-batches of segments from a PyG graph in memory, the counterpart of `NeighborLoader`.

Legend: n nodes, m edges, R records, H heads, b segment length, U distinct nodes of a batch, E edge channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cocn.loading.batching import BatchPlan, EpochOrder
from cocn.loading.covering import residual_orders, window_order
from cocn.loading.csr import CSR, csr_from_keys, distinct, edge_sources, entry_rows
from cocn.loading.cutting import Segments, build_segments, check_length
from cocn.loading.prefetch import Prefetcher
from cocn.loading.records import compact
from cocn.loading.sequences import sequence
from cocn.propagation import normalised_adjacency
from cocn.segments import SegmentBatch

if TYPE_CHECKING:
    from torch_geometric.data import Data


class SegmentLoader:
    """Iterates over the nodes of a graph in mini-batches of their segments, ready for :class:`SegmentCoCN`.

    The nodes are ordered once, by orders that bring the ends of as many edges as possible within one segment
    of each other. The segment of a node and head is the b nodes from it onwards in that head's order, with
    the edges among them, so the cost of a batch does not depend on the size of the graph. Nothing is lost:
    the outputs for a batch are those that the model gives for its nodes in the whole graph.

    Give the model ``position_source="fixed"``, the same number of heads and the same segment length.

    Args:
        data: a PyG ``Data`` with ``edge_index`` and, where present, ``x``, ``y``, ``edge_weight``
            or ``edge_attr``.
        batch_size: largest number of nodes in a batch.
        heads: H, number of orders.
        length: b, nodes in a segment.
        input_nodes: nodes to iterate over, as a mask or as node ids; all by default.
        hops: K for features [X, ÃX, …, Ã^K X] in place of X, propagated once.
        shuffle: shuffle the nodes, in a different order every epoch.
        seed: decides the order of the nodes, together with the epoch.
        directed: keep the direction of the edges; by default every edge counts in both directions.
        positions: [n] numbers by which nodes of equal degree are arranged before they are ordered; by default
            ``data.r_A``, which `pipeline.to_pyg` sets so that the segments are those of the store, otherwise
            the structure of the graph alone decides.
        device: where batches go.
        prefetch: batches that a thread prepares in advance.

    Raises:
        ValueError: if the graph has fewer nodes than a segment, or sizes do not fit.
    """

    def __init__(
        self,
        data: Data,
        batch_size: int = 1000,
        *,
        heads: int = 8,
        length: int = 8,
        input_nodes: Tensor | None = None,
        hops: int = 0,
        shuffle: bool = False,
        seed: int = 0,
        directed: bool = False,
        positions: Tensor | None = None,
        device: torch.device | str = "cpu",
        prefetch: int = 2,
    ) -> None:
        num_nodes = int(data.num_nodes or 0)
        check_length(length, num_nodes)
        csr, values = _adjacency(data, num_nodes, directed)
        both_ways = _adjacency(data, num_nodes, directed=False)[0] if directed else csr
        self.segments = _order_segments(csr, both_ways, _positions_of(data, positions), heads, length, values)
        self.x = _features(data, csr, num_nodes, hops)
        self.y = None if data.get("y") is None else data.y.detach().cpu()
        self._values = values
        self._nodes = _node_numbers(input_nodes, num_nodes)
        self._plan = BatchPlan(self._nodes.size, batch_size)
        self._shuffle = shuffle
        self._seed = seed
        self._device = torch.device(device)
        self._prefetch = prefetch
        self.epoch = 0

    def __len__(self) -> int:
        """Batches of an epoch; their sizes differ by at most one node."""
        return self._plan.num_steps

    def __iter__(self) -> Iterator[SegmentBatch]:
        """The batches of the next epoch."""
        order = EpochOrder(self._plan.num_rows, self._seed, self.epoch, self._shuffle)
        self.epoch += 1

        def prepare(step: int) -> SegmentBatch:
            return self.batch(self._nodes[order.rows(*self._plan.share(step, 0))])

        with Prefetcher(prepare, range(len(self)), self._prefetch) as batches:
            for batch in batches:
                yield batch.to(self._device, non_blocking=True)

    def batch(self, nodes: NDArray[np.integer]) -> SegmentBatch:
        """The segments that start at the given nodes."""
        windows = self.segments.windows(nodes)
        index = np.empty(windows.ids.shape, dtype=np.int64)
        rows = torch.from_numpy(compact(windows.ids, index))
        node = torch.from_numpy(nodes.astype(np.int64))
        values = None
        if windows.edges is not None and self._values is not None:
            present = (windows.edges >= 0)[..., None]
            values = torch.from_numpy(np.where(present, self._values[windows.edges], np.float32(0)))
        return SegmentBatch(
            x=self.x.index_select(0, rows),
            index=torch.from_numpy(index),
            words=torch.from_numpy(windows.words),
            node=node,
            y=None if self.y is None else self.y[node],
            values=values,
        )


def _adjacency(data: Data, num_nodes: int, directed: bool) -> tuple[CSR, NDArray[np.float32] | None]:
    """The edges without self-loops and duplicates, and the values that come with them [m, E]."""
    source, target = data.edge_index.detach().cpu().numpy().astype(np.int64)
    given = data.get("edge_attr") if data.get("edge_attr") is not None else data.get("edge_weight")
    if (
        source.size
        and not 0 <= min(source.min(), target.min()) <= max(source.max(), target.max()) < num_nodes
    ):
        raise ValueError(f"Expected 'edge_index' to hold node ids from 0 to {num_nodes - 1}")
    proper = source != target
    keys = source[proper] * num_nodes + target[proper]
    if not directed:
        keys = np.concatenate([keys, target[proper] * num_nodes + source[proper]])
    csr = csr_from_keys(distinct(keys), num_nodes)
    if given is None:
        return csr, None
    values = given.detach().cpu().float().numpy().reshape(source.size, -1)
    return csr, values[entry_rows(csr, source, target)]


def _order_segments(
    csr: CSR,
    both_ways: CSR,
    positions: NDArray[np.float64],
    heads: int,
    length: int,
    values: NDArray[np.float32] | None,
) -> Segments:
    orders = residual_orders(both_ways, positions, heads, length, window_order)
    return build_segments(
        sequence(orders.rank.astype(np.float64), csr), csr, length, edge_ids=values is not None
    )


def _positions_of(data: Data, positions: Tensor | None) -> NDArray[np.float64]:
    given: Any = data.get("r_A") if positions is None else positions
    num_nodes = int(data.num_nodes)
    if given is None:
        return np.zeros(num_nodes)
    if given.numel() != num_nodes:
        raise ValueError(f"Expected 'positions' to have one number for each of {num_nodes} nodes")
    return np.asarray(given.detach().cpu().double().reshape(-1).numpy())


def _features(data: Data, csr: CSR, num_nodes: int, hops: int) -> Tensor:
    x = torch.ones(num_nodes, 1) if data.get("x") is None else data.x.detach().cpu().float()
    if not hops:
        return x
    edges = torch.from_numpy(np.stack([edge_sources(csr), csr.indices]).astype(np.int64))
    adjacency = normalised_adjacency(edges, num_nodes)
    blocks = [x]
    for _ in range(hops):
        blocks.append(adjacency.propagate(blocks[-1]))
    return torch.cat(blocks, dim=1)


def _node_numbers(nodes: Tensor | None, num_nodes: int) -> NDArray[np.int64]:
    if nodes is None:
        return np.arange(num_nodes, dtype=np.int64)
    found = nodes.nonzero().squeeze(1) if nodes.dtype == torch.bool else nodes
    return np.asarray(found.detach().cpu().long().numpy())
