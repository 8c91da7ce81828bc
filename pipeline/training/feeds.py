"""Feeds of one graph: mini-batches of its segments, or all of it at once."""

import math
from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from cocn import SegmentBatch
from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions, gather_from_ranks
from pipeline.models.networks import Network
from pipeline.models.opponents import Opponent
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.models.tasks import read_targets
from pipeline.segments.loader import LoaderState, SegmentLoader
from pipeline.segments.records import SegmentSource
from pipeline.segments.stage import PARTS
from pipeline.segments.windows import Segments
from pipeline.store.graph_store import GraphStore
from pipeline.training.collection_feed import CollectionFeed
from pipeline.training.inputs import open_graph, part_code, read_node_table
from pipeline.training.link_feed import LinkFeed
from pipeline.training.needs import resolve_needs
from pipeline.training.neighbour_feed import NeighbourFeed, samples_neighbours
from pipeline.training.opponent_inputs import fit_scale
from pipeline.training.protocol import Feed, OneStepFeed, Share
from pipeline.training.row_feed import RowFeed
from pipeline.training.segment_sources import open_part, sequence_segments
from pipeline.training.whole_graph_feed import WholeGraphFeed


def open_feed(
    store: GraphStore, config: Config, model: Network, rank: int, world_size: int, device: torch.device
) -> Feed:
    """The feed that a model needs."""
    needs = resolve_needs(config, store)
    if isinstance(model, Opponent) and needs.reading in ("graphs", "links"):
        fit_scale(model, store)
    if needs.reading == "graphs":
        return CollectionFeed(store, config, needs.task, rank, world_size, device)
    if needs.reading == "links":
        return LinkFeed(store, config, world_size, device)
    if needs.reading == "segments":
        return SegmentFeed(store, config, model, rank, world_size, device)
    if isinstance(model, RowOpponent):
        return RowFeed(store, config, model, device)
    if isinstance(model, Opponent):
        sampled = samples_neighbours(config, store.num_nodes)
        return (NeighbourFeed if sampled else WholeGraphFeed)(store, config, model, device)
    return _GraphFeed(store, config, world_size, device)


class SegmentFeed:
    """Mini-batches of segments: from shards if the order is fixed, built in memory if it is learned."""

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
        self._targets = read_targets(store, config.data.split, device)
        needs = resolve_needs(config, store)
        self._learns = not needs.reads_shards
        self._table = read_node_table(store, needs)
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
        self._evaluation = {"batch_size": train.batch_size, **shared}
        self._num_rows: dict[str, int] = {}

    @property
    def steps_per_epoch(self) -> int:
        return len(self._loader)

    @property
    def epoch_ended(self) -> bool:
        return not self._loader.remaining

    def _follow_positions(self) -> None:
        """Reorder the nodes if positions are learned and have changed."""
        if not self._learns:
            return
        now = {name: value.detach().clone() for name, value in self._regression().state_dict().items()}
        if self._sequencer is None or not _equal(self._sequencer, now):
            self._resequence(now)

    def _resequence(self, weights: Mapping[str, Tensor]) -> None:
        """Order the nodes by the positions that `weights` give, current or earlier ones."""
        self._sequencer = dict(weights)
        self._segments = sequence_segments(
            self._store, self._config, self._table, self._regression(), self._sequencer
        )

    def _regression(self) -> nn.Module:
        if self._model.positions is None:
            raise ValueError("Expected a model that learns positions (got one that does not)")
        return self._model.positions

    def _source(self, part: str) -> SegmentSource:
        return open_part(self._store, self._config.data.split, part, self._table, self._segments)

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
        outputs = model(share.batch).float()
        target = self._targets.values[cast(SegmentBatch, share.batch).node]
        return self._targets.loss(outputs, target, class_weights, self._config.train.label_smoothing)

    def num_rows(self, part: str) -> int:
        if part not in self._num_rows:
            self._num_rows[part] = self._source(part).num_rows
        return self._num_rows[part]

    def predict(self, model: nn.Module, part: str) -> Predictions:
        return self.predict_sample(model, part, 1.0)

    def predict_sample(self, model: nn.Module, part: str, share: float) -> Predictions:
        self._follow_positions()
        # A sample is the first batches in random order; all of them are read in the order of the rows.
        loader = SegmentLoader(self._source(part), shuffle=share < 1, **self._evaluation)  # type: ignore[arg-type]
        batches = loader.take(max(math.ceil(share * len(loader)), 1))
        parts = [(batch.node, model(batch).float()) for batch in batches]
        node, outputs = (gather_from_ranks(torch.cat(column)) for column in zip(*parts, strict=True))
        order = node.argsort()
        return self._targets.predictions(node[order], outputs[order])

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


class _GraphFeed(OneStepFeed):
    """The whole graph in every step; its heads are divided among the ranks, and each rank sees every node."""

    def __init__(self, store: GraphStore, config: Config, world_size: int, device: torch.device) -> None:
        self._graph = open_graph(store, config).to(device)
        self._smoothing = config.train.label_smoothing
        self._targets = read_targets(store, config.data.split, device)
        split = torch.from_numpy(store.split(config.data.split).astype(np.int64))
        self._nodes = {part: (split == part_code(part)).nonzero().squeeze(1).to(device) for part in PARTS}
        super().__init__(self._nodes["train"].numel(), world_size)

    def shares(self) -> Iterator[Share]:
        if self._pending:
            self._pending = False
            yield Share(self._graph, self._nodes["train"].numel())

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        nodes = self._nodes["train"]
        outputs = model(share.batch).float()[nodes]
        total = self._targets.loss(outputs, self._targets.values[nodes], class_weights, self._smoothing)
        return total / self._world_size

    def predict(self, model: nn.Module, part: str) -> Predictions:
        nodes = self._nodes[part]
        return self._targets.predictions(nodes, model(self._graph).float()[nodes])


def _equal(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(one[name].to(value.device), value) for name, value in two.items())
