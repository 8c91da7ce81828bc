"""LINKX: a perceptron on rows of the adjacency next to one on features (Lim et al., 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.config.settings import ModelConfig
from pipeline.models.opponents.blocks import Block
from pipeline.models.opponents.inputs import RowBatch
from pipeline.models.opponents.perceptrons import Perceptron, RowOpponent
from pipeline.store.arrays import Task


class LINKX(RowOpponent):
    """LINKX has a row of weights for every node of the graph, so it cannot read another graph.

    PyG's LINKX multiplies the whole adjacency in every step; this one only sums the weights of the neighbours
    of its rows.

    Args:
        settings: sizes and switches.
        num_features: columns of x.
        out_channels: number of outputs.
        task: nodes or links.
        num_nodes: nodes of the graph.
    """

    def __init__(
        self, settings: ModelConfig, num_features: int, out_channels: int, task: Task, *, num_nodes: int
    ) -> None:
        super().__init__(settings, num_features, out_channels, task, (Block("features", num_features),))
        channels = settings.hidden_channels
        bound = 1 / max(num_nodes, 1) ** 0.5
        self.weight = nn.Parameter(torch.empty(num_nodes, channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.features = nn.Linear(num_features, channels)
        self.mix_links = nn.Linear(channels, channels)
        self.mix_features = nn.Linear(channels, channels)
        self.body = Perceptron(settings, channels, max(settings.opponent.layers - 1, 1))

    @property
    def reads_neighbours(self) -> bool:
        return True

    def encode_rows(self, rows: RowBatch) -> Tensor:
        if rows.neighbours is None or rows.offsets is None:
            raise ValueError("Expected rows with their neighbours (got rows without)")
        links = F.embedding_bag(rows.neighbours, self.weight, rows.offsets, mode="sum") + self.bias
        own = self.features(self._scaled(rows)[0])
        joined = links + self.mix_links(links) + own + self.mix_features(own)
        hidden: Tensor = self.body(self.dropout(torch.relu(joined)))
        return hidden
