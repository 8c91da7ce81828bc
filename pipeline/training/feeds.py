"""Feeds of one graph: mini-batches of its segments, or the whole of it at once."""

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from cocn import SegmentBatch
from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions, gather_from_ranks
from pipeline.models.networks import Network, position_source, resolve_task, streams
from pipeline.orders.sequences import sequence
from pipeline.segments.loader import LoaderState, SegmentLoader
from pipeline.segments.records import MemorySource, NodeTable, SegmentSource
from pipeline.segments.stage import PARTS, open_segments
from pipeline.segments.windows import Segments, build_segments
from pipeline.store.graph_store import GraphStore
from pipeline.training.collection_feed import CollectionFeed
from pipeline.training.inputs import part_code, part_of_rows, read_graph, read_node_table
from pipeline.training.link_feed import LinkFeed
from pipeline.training.neighbour_feed import SAMPLED, NeighbourFeed, can_sample
from pipeline.training.protocol import Feed, OneStepFeed, Share

#: Rows of position regression that are computed at once when a graph is sequenced anew.
POSITION_ROWS = 65_536


def open_feed(
    store: GraphStore, config: Config, model: Network, rank: int, world_size: int, device: torch.device
) -> Feed:
    """The feed that a model needs."""
    task = resolve_task(config, store)
    if store.is_collection:
        return CollectionFeed(store, config, task, rank, world_size, device)
    if task == "link":
        return LinkFeed(store, config, world_size, device)
    if streams(config.model):
        return SegmentFeed(store, config, model, rank, world_size, device)
    if config.model.name in SAMPLED and can_sample():
        return NeighbourFeed(store, config, device)
    return GraphFeed(store, config, world_size, device)


class SegmentFeed:
    """Mini-batches of segments: from shards where the order is fixed, built in memory where it is learned."""

    def __init__(
        self,
        store: GraphStore,
        config: Config,
        model: Network,
        rank: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        self._store = store
        self._config = config
        self._model = model
        self._learns = position_source(config.model) != "fixed"
        self._table = read_node_table(store, config)
        self._sequencer: dict[str, Tensor] | None = None
        self._segments: Segments | None = None
        shared = {"rank": rank, "world_size": world_size, "device": device}
        train = config.train
        self._follow_positions()
        self._loader = SegmentLoader(
            self._source("train"),
            train.batch_size,
            seed=train.seed,
            rank=rank,
            world_size=world_size,
            device=device,
        )
        self._evaluation = {"batch_size": train.batch_size, "shuffle": False, **shared}

    @property
    def steps_per_epoch(self) -> int:
        return len(self._loader)

    @property
    def epoch_ended(self) -> bool:
        return not self._loader.remaining

    def _follow_positions(self) -> None:
        """Order the nodes anew if positions are learned and have changed."""
        if not self._learns:
            return
        now = {name: value.detach().clone() for name, value in self._regression().state_dict().items()}
        if self._sequencer is None or not _equal(self._sequencer, now):
            self._resequence(now)

    def _resequence(self, weights: Mapping[str, Tensor]) -> None:
        """Order the nodes by the positions that `weights` give, those of now or of before."""
        self._sequencer = dict(weights)
        self._segments = sequence_segments(
            self._store, self._config, self._table, self._regression(), self._sequencer
        )

    def _regression(self) -> nn.Module:
        if self._model.positions is None:
            raise ValueError("Expected a model that learns positions (got one that does not)")
        return self._model.positions

    def _source(self, part: str) -> SegmentSource:
        split = self._config.data.split
        if self._segments is None:
            return open_segments(self._store, split, part, self._table)
        nodes = np.flatnonzero(part_of_rows(self._store, split) == part_code(part)).astype(np.int32)
        return MemorySource(self._segments, nodes, self._store.labels(), self._table)

    def start_epoch(self, epoch: int) -> None:
        if self._learns and epoch != self._loader.epoch:
            self._follow_positions()
            self._loader.set_source(self._source("train"))
        self._loader.set_epoch(epoch)

    def shares(self) -> Iterator[Share]:
        step = self._loader.step
        for batch in self._loader:
            yield Share(batch, self._loader.global_rows(step))
            step += 1

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        logits = model(share.batch).float()
        labels = cast(SegmentBatch, share.batch).y
        return F.cross_entropy(
            logits, cast(Tensor, labels), weight=class_weights, reduction="sum", ignore_index=-1
        )

    def predict(self, model: nn.Module, part: str) -> Predictions:
        self._follow_positions()
        loader = SegmentLoader(self._source(part), **self._evaluation)  # type: ignore[arg-type]
        parts = [(batch.node, model(batch).float(), batch.y) for batch in loader]
        node, logits, label = (gather_from_ranks(torch.cat(column)) for column in zip(*parts, strict=True))
        order = node.argsort()
        return Predictions(node[order], logits[order], label[order])

    def cursor(self) -> LoaderState | None:
        return self._loader.state()

    def sequencer(self) -> dict[str, Tensor] | None:
        return self._sequencer

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        if self._learns and sequencer is not None:
            self._resequence(sequencer)
            self._loader.set_source(self._source("train"))
        if cursor is not None:
            self._loader.load_state(cursor)


class GraphFeed(OneStepFeed):
    """The whole graph in every step; ranks share out its heads, and each sees every node."""

    def __init__(self, store: GraphStore, config: Config, world_size: int, device: torch.device) -> None:
        self._graph = read_graph(store, config).to(device)
        split = torch.from_numpy(store.split(config.data.split).astype(np.int64))
        self._labels = torch.from_numpy(store.labels().astype(np.int64)).to(device)
        self._nodes = {part: (split == part_code(part)).nonzero().squeeze(1).to(device) for part in PARTS}
        super().__init__(self._nodes["train"].numel(), world_size)

    def shares(self) -> Iterator[Share]:
        if self._pending:
            self._pending = False
            yield Share(self._graph, self._nodes["train"].numel())

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        nodes = self._nodes["train"]
        logits = model(share.batch).float()[nodes]
        total = F.cross_entropy(
            logits, self._labels[nodes], weight=class_weights, reduction="sum", ignore_index=-1
        )
        return total / self._world_size

    def predict(self, model: nn.Module, part: str) -> Predictions:
        nodes = self._nodes[part]
        return Predictions(nodes, model(self._graph).float()[nodes], self._labels[nodes])


def sequence_segments(
    store: GraphStore,
    config: Config,
    table: NodeTable,
    regression: nn.Module,
    weights: Mapping[str, Tensor],
) -> Segments:
    """Regress the position of every node with the given weights, order the nodes and cut the segments."""
    if table.positions is None:
        raise ValueError("Expected columns that positions are regressed from (got none)")
    device = next(regression.parameters()).device
    with torch.no_grad():
        rows = [
            functional_call(regression, dict(weights), (torch.from_numpy(np.array(part)).to(device),)).cpu()
            for part in _blocks(table.positions, POSITION_ROWS)
        ]
    csr = store.csr()
    return build_segments(sequence(torch.cat(rows).numpy(), csr), csr, config.segments.length)


def _equal(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name].to(value.device), value) for name, value in two.items())


def _blocks(rows: NDArray[np.float32], size: int) -> Iterator[NDArray[np.float32]]:
    for start in range(0, rows.shape[0], size):
        yield rows[start : start + size]
