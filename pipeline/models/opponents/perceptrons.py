"""MLP, SGC and SIGN: perceptrons on rows; what they use of the graph is propagated beforehand."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config.settings import ModelConfig
from pipeline.features.own import OWN
from pipeline.models.opponents.base import Opponent, Standardisation, make_norm
from pipeline.models.opponents.blocks import Block, compute_blocks
from pipeline.models.opponents.inputs import OpponentGraph, RowBatch
from pipeline.store.arrays import Task


class RowOpponent(Opponent):
    """A network on blocks of columns that predicts for a node without reading others.

    Args:
        settings: sizes and switches.
        num_features: columns of x.
        out_channels: number of outputs.
        task: what the output is about.
        blocks: what it reads per node.
        width: channels of the representation.
    """

    def __init__(
        self,
        settings: ModelConfig,
        num_features: int,
        out_channels: int,
        task: Task,
        blocks: tuple[Block, ...],
        width: int | None = None,
    ) -> None:
        super().__init__(settings, num_features, out_channels, task, width)
        self.blocks = blocks
        # Each block has its own scale, instead of that of the features.
        self.scale = Standardisation(0)
        self.scales = nn.ModuleList(Standardisation(block.columns) for block in blocks)

    @property
    def reads_neighbours(self) -> bool:
        """Whether it also reads lists of neighbours."""
        return False

    def fit(self, rows: RowBatch) -> None:
        """Take the scale of every block from some rows."""
        for block, scale, values in zip(self.blocks, self.scales, rows.blocks, strict=True):
            if block.content != "stored":  # stored blocks are already scaled
                scale.fit(values)  # type: ignore[operator]

    def encode(self, graph: OpponentGraph) -> Tensor:
        x = graph.x.detach().cpu().numpy().astype(np.float32)
        values = compute_blocks(self.blocks, x, graph.adjacency)
        blocks = tuple(torch.from_numpy(np.ascontiguousarray(each)).to(graph.device) for each in values)
        return self.encode_rows(
            _with_neighbours(RowBatch(blocks), graph) if self.reads_neighbours else RowBatch(blocks)
        )

    def _scaled(self, rows: RowBatch) -> list[Tensor]:
        return [scale(values.float()) for scale, values in zip(self.scales, rows.blocks, strict=True)]


def _with_neighbours(rows: RowBatch, graph: OpponentGraph) -> RowBatch:
    """All rows of a graph with the lists of their neighbours."""
    undirected = graph.adjacency.maximum(graph.adjacency.T).tocsr()
    neighbours = torch.from_numpy(undirected.indices.astype(np.int64)).to(graph.device)
    offsets = torch.from_numpy(undirected.indptr[:-1].astype(np.int64)).to(graph.device)
    return RowBatch(rows.blocks, neighbours, offsets)


class Perceptron(nn.Sequential):
    """Layers of linear map, norm, ReLU and dropout."""

    def __init__(self, settings: ModelConfig, in_channels: int, layers: int) -> None:
        channels = settings.hidden_channels
        parts: list[nn.Module] = []
        for width in [in_channels] + [channels] * (layers - 1):
            parts += [nn.Linear(width, channels), make_norm(settings.opponent.norm, channels)]
            parts += [nn.ReLU(), nn.Dropout(settings.dropout)]
        super().__init__(*parts)


class MLP(RowOpponent):
    """A perceptron on a node's own features."""

    def __init__(self, settings: ModelConfig, num_features: int, out_channels: int, task: Task) -> None:
        super().__init__(settings, num_features, out_channels, task, (Block("features", num_features),))
        self.body = Perceptron(settings, num_features, settings.opponent.layers)

    def encode_rows(self, rows: RowBatch) -> Tensor:
        hidden: Tensor = self.body(self._scaled(rows)[0])
        return hidden


class SGC(RowOpponent):
    """One linear map of features propagated K times (Wu et al., 2019)."""

    def __init__(self, settings: ModelConfig, num_features: int, out_channels: int, task: Task) -> None:
        block = Block("features", num_features, "symmetric", settings.opponent.hops)
        super().__init__(settings, num_features, out_channels, task, (block,), width=num_features)

    def encode_rows(self, rows: RowBatch) -> Tensor:
        hidden: Tensor = self.dropout(self._scaled(rows)[0])
        return hidden


class SIGN(RowOpponent):
    """Averages hop by hop, each with its own linear map, norm and gate.

    As in Frasca et al. (2020) and Maurya et al. (2021). Of directed graphs it reads both directions apart as
    well. Of the nodes of a store it reads the input blocks that our own models read: averages that are taken
    once, and classes of the neighbours that are training nodes.

    Args:
        settings: sizes and switches.
        num_features: columns of x.
        out_channels: number of outputs.
        task: what the output is about.
        directed: whether the graph has directions.
        stored: names and columns of input blocks; where features are not among them, hops are computed here.
    """

    def __init__(
        self,
        settings: ModelConfig,
        num_features: int,
        out_channels: int,
        task: Task,
        *,
        directed: bool = False,
        stored: Mapping[str, int] | None = None,
    ) -> None:
        blocks = _sign_blocks(num_features, settings.opponent.hops, stored or {}, directed=directed)
        super().__init__(settings, num_features, out_channels, task, blocks)
        channels = settings.hidden_channels
        self.maps = nn.ModuleList(nn.Linear(block.columns, channels) for block in blocks)
        self.norms = nn.ModuleList(make_norm("layer", channels) for _ in blocks)
        self.gates = nn.Parameter(torch.zeros(len(blocks)))
        self.input_dropout = nn.Dropout(settings.opponent.input_dropout)
        self.body = Perceptron(settings, channels, settings.opponent.layers - 1)

    def encode_rows(self, rows: RowBatch) -> Tensor:
        gates = self.gates.softmax(0) * len(self.blocks)
        parts = zip(self._scaled(rows), self.maps, self.norms, gates, strict=True)
        total = sum(gate * norm(linear(self.input_dropout(values))) for values, linear, norm, gate in parts)
        hidden: Tensor = self.body(self.dropout(torch.relu(total)))
        return hidden


def _sign_blocks(
    num_features: int, hops: int, stored: Mapping[str, int], *, directed: bool
) -> tuple[Block, ...]:
    features = []
    if OWN not in stored:
        features = [Block("features", num_features, "mean", hop) for hop in range(hops + 1)]
        if directed:
            features += [Block("features", num_features, kind, 1) for kind in ("mean_out", "mean_in")]
    named = [Block("stored", columns, name=name) for name, columns in stored.items()]
    return (*features, Block("degrees", 3), *named)
