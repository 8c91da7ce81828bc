"""What a training loop is fed with: mini-batches of segments, or the whole graph at once.

Both kinds answer the same questions, so that one loop trains every model.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import cocn
from cocn import GraphBatch, SegmentBatch
from pipeline.arrays import SPLIT_NAMES
from pipeline.config import Config
from pipeline.evaluate import gather_rows
from pipeline.heads import head_positions
from pipeline.loader import LoaderState, SegmentLoader
from pipeline.modelling import position_source, streams
from pipeline.propagate import open_propagated
from pipeline.segments import PARTS, open_segments
from pipeline.sequences import sequence
from pipeline.sources import MemorySource, NodeTable, SegmentSource
from pipeline.store import GraphStore
from pipeline.windows import Segments, build_segments

#: Rows of position regression that are computed at once when a graph is sequenced anew.
POSITION_ROWS = 65_536


@dataclass(frozen=True)
class Share:
    """A rank's part of one optimiser step.

    Attributes:
        batch: what the model reads.
        rows: rows of the step over all ranks, which the summed loss is divided by.
    """

    batch: SegmentBatch | GraphBatch
    rows: int


@dataclass(frozen=True)
class Predictions:
    """Answers for the nodes of a part, all ranks together, in the order of node ids."""

    node: Tensor
    logits: Tensor
    label: Tensor


class Feed(Protocol):
    """Where training data comes from."""

    @property
    def steps_per_epoch(self) -> int: ...

    def start_epoch(self, epoch: int) -> None:
        """Get ready for an epoch, or stay where the cursor is if that epoch runs already."""

    def shares(self) -> Iterator[Share]:
        """What is left of the running epoch, for this rank."""

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        """Cross-entropy summed over this rank's rows of a step."""

    def predict(self, model: nn.Module, part: str) -> Predictions:
        """Answers for a part of the split, in evaluation mode."""

    def cursor(self) -> LoaderState | None:
        """Place in the running epoch."""

    def sequencer(self) -> dict[str, Tensor] | None:
        """Weights of position regression that made the sequences of the running epoch."""

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        """Go to a saved place."""


def open_feed(
    store: GraphStore, config: Config, model: cocn.CoCN, rank: int, world_size: int, device: torch.device
) -> Feed:
    """The feed that a model needs."""
    if streams(config.model):
        return SegmentFeed(store, config, model, rank, world_size, device)
    return GraphFeed(store, config, device)


class SegmentFeed:
    """Mini-batches of segments: from shards where the order is fixed, built in memory where it is learned."""

    def __init__(
        self,
        store: GraphStore,
        config: Config,
        model: cocn.CoCN,
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
        if self._learns:
            self.resequence()
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

    def resequence(self, weights: Mapping[str, Tensor] | None = None) -> None:
        """Order the nodes by the current positions, or by those of earlier weights."""
        regression = self._model.positions
        if regression is None or self._table.positions is None:
            raise ValueError("Expected a model that learns positions from columns of the store (got none)")
        current = {name: value.detach().clone() for name, value in regression.state_dict().items()}
        if weights is not None:
            regression.load_state_dict(weights)
        self._sequencer = {name: value.detach().clone() for name, value in regression.state_dict().items()}
        with torch.no_grad():
            device = next(regression.parameters()).device
            rows = [
                regression(torch.from_numpy(np.array(part)).to(device)).cpu()
                for part in _blocks(self._table.positions, POSITION_ROWS)
            ]
        regression.load_state_dict(current)
        csr = self._store.csr()
        self._segments = build_segments(
            sequence(torch.cat(rows).numpy(), csr), csr, self._config.segments.length
        )

    def _source(self, part: str) -> SegmentSource:
        split = self._config.data.split
        if self._segments is None:
            return open_segments(self._store, split, part, self._table)
        nodes = np.flatnonzero(self._store.split(split) == part_code(part)).astype(np.int32)
        return MemorySource(self._segments, nodes, self._store.labels(), self._table)

    def start_epoch(self, epoch: int) -> None:
        if self._learns and epoch != self._loader.epoch:
            self.resequence()
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
        loader = SegmentLoader(self._source(part), **self._evaluation)  # type: ignore[arg-type]
        parts = [(batch.node, model(batch).float(), batch.y) for batch in loader]
        node, logits, label = (gather_rows(torch.cat(column)) for column in zip(*parts, strict=True))
        order = node.argsort()
        return Predictions(node[order], logits[order], label[order])

    def cursor(self) -> LoaderState | None:
        return self._loader.state()

    def sequencer(self) -> dict[str, Tensor] | None:
        return self._sequencer

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        if self._learns and sequencer is not None:
            self.resequence(sequencer)
            self._loader.set_source(self._source("train"))
        if cursor is not None:
            self._loader.load_state(cursor)


class GraphFeed:
    """The whole graph in every step."""

    def __init__(self, store: GraphStore, config: Config, device: torch.device) -> None:
        self._graph = read_graph(store, config).to(device)
        split = torch.from_numpy(store.split(config.data.split).astype(np.int64))
        self._labels = torch.from_numpy(store.labels().astype(np.int64)).to(device)
        self._nodes = {part: (split == part_code(part)).nonzero().squeeze(1).to(device) for part in PARTS}
        self._pending = True

    @property
    def steps_per_epoch(self) -> int:
        return 1

    def start_epoch(self, epoch: int) -> None:
        self._pending = True

    def shares(self) -> Iterator[Share]:
        if self._pending:
            self._pending = False
            yield Share(self._graph, self._nodes["train"].numel())

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        nodes = self._nodes["train"]
        logits = model(share.batch).float()[nodes]
        return F.cross_entropy(
            logits, self._labels[nodes], weight=class_weights, reduction="sum", ignore_index=-1
        )

    def predict(self, model: nn.Module, part: str) -> Predictions:
        nodes = self._nodes[part]
        return Predictions(nodes, model(self._graph).float()[nodes], self._labels[nodes])

    def cursor(self) -> LoaderState | None:
        return None

    def sequencer(self) -> dict[str, Tensor] | None:
        return None

    def restore(self, cursor: LoaderState | None, sequencer: Mapping[str, Tensor] | None) -> None:
        self._pending = True


def part_code(part: str) -> int:
    """The number that a split has for a part; −1 for the nodes in none."""
    return SPLIT_NAMES.index(part) if part in SPLIT_NAMES else -1


def read_node_table(store: GraphStore, config: Config) -> NodeTable:
    """What a segment model reads of nodes: features, propagated ones, and what positions come from."""
    model = config.model
    features: list[NDArray[np.float32]] = [store.features()]
    if model.propagated_features:
        features.append(open_propagated(store, 1))
    table = NodeTable(features)
    source = position_source(model)
    if source == "explicit":
        return replace(table, positions=open_propagated(store, model.smoothness))
    if source == "implicit":
        return replace(table, positions=store.positions())
    return table


def read_graph(store: GraphStore, config: Config) -> GraphBatch:
    """The whole graph, arranged once for every step."""
    csr = store.csr()
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
        positions = torch.from_numpy(columns)
    elif source == "implicit":
        positions = torch.from_numpy(np.array(store.positions()))
    x = torch.from_numpy(np.array(store.features())) if store.manifest.num_features else None
    return cocn.prepare(
        x, edge_index, positions=positions, num_nodes=csr.num_nodes, self_loops=config.model.self_loops
    )


def _blocks(rows: NDArray[np.float32], size: int) -> Iterator[NDArray[np.float32]]:
    for start in range(0, rows.shape[0], size):
        yield rows[start : start + size]
