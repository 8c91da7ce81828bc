"""SGFormer and Polynormer: PyG's linear-time attention between all nodes, next to or after convolutions."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.config.settings import ModelConfig
from pipeline.models.opponents.base import BatchNorm, Opponent
from pipeline.models.opponents.convolutional import AttentionConvolution, GraphConvolution
from pipeline.models.opponents.inputs import OpponentGraph
from pipeline.store.arrays import Task


class SGFormer(Opponent):
    """A GCN and one global attention, added with fixed weights (Wu et al., 2023)."""

    def __init__(self, settings: ModelConfig, num_features: int, out_channels: int, task: Task) -> None:
        # PyG takes seconds to import.
        from torch_geometric.nn.attention import SGFormerAttention

        super().__init__(settings, num_features, out_channels, task)
        recipe, channels = settings.opponent, settings.hidden_channels
        self.graph_weight = recipe.graph_weight
        self.local_input = nn.Sequential(
            nn.Linear(num_features, channels),
            BatchNorm(channels),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
        )
        self.convolutions = nn.ModuleList(
            GraphConvolution(settings, channels, channels) for _ in range(recipe.layers)
        )
        self.norms = nn.ModuleList(BatchNorm(channels) for _ in range(recipe.layers))
        self.global_input = nn.Sequential(
            nn.Linear(num_features, channels), nn.LayerNorm(channels), nn.ReLU(), nn.Dropout(settings.dropout)
        )
        self.attentions = nn.ModuleList(
            SGFormerAttention(channels, 1, channels) for _ in range(recipe.global_layers)
        )
        self.global_norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(recipe.global_layers))

    def encode(self, graph: OpponentGraph) -> Tensor:
        x = self.scale(graph.x)
        near = local = self.local_input(x)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            near = self.dropout(F.relu(norm(convolution(near, graph)))) + local
        far = self.global_input(x)
        for attention, norm in zip(self.attentions, self.global_norms, strict=True):
            far = self.dropout(F.relu(norm((_attend(attention, far, graph) + far) / 2)))
        mixed: Tensor = self.graph_weight * near + (1 - self.graph_weight) * far
        return mixed


class Polynormer(Opponent):
    """Local attention with polynomial features, and global attention on top of it (Deng et al., 2024).

    The first `local_epochs` train only the local part; then the global part joins. Which of the two is used
    is stored with the weights, so that a checkpoint predicts as it did in training.

    Deviation: one linear map at the end serves both phases; the paper has one for each.
    """

    is_global: Tensor

    def __init__(self, settings: ModelConfig, num_features: int, out_channels: int, task: Task) -> None:
        from torch_geometric.nn.attention import PolynormerAttention

        super().__init__(settings, num_features, out_channels, task)
        recipe, channels = settings.opponent, settings.hidden_channels
        widths = [num_features] + [channels] * (recipe.layers - 1)
        self.beta, self.local_epochs = recipe.beta, recipe.local_epochs
        self.input_dropout = nn.Dropout(recipe.input_dropout)
        self.gates = nn.ModuleList(nn.Linear(width, channels) for width in widths)
        self.convolutions = nn.ModuleList(AttentionConvolution(settings, width, channels) for width in widths)
        self.residuals = nn.ModuleList(nn.Linear(width, channels) for width in widths)
        self.norms = nn.ModuleList(BatchNorm(channels) for _ in widths)
        self.product_norms = nn.ModuleList(nn.LayerNorm(channels) for _ in widths)
        heads = recipe.attention_heads
        self.attentions = nn.ModuleList(
            PolynormerAttention(
                channels, heads, channels // heads, beta=recipe.beta, qk_shared=True, dropout=settings.dropout
            )
            for _ in range(recipe.global_layers)
        )
        self.global_norm = nn.LayerNorm(channels)
        self.register_buffer("is_global", torch.zeros((), dtype=torch.bool))

    def start_epoch(self, epoch: int) -> None:
        self.is_global.fill_(epoch >= self.local_epochs)

    def encode(self, graph: OpponentGraph) -> Tensor:
        local = self._local(self.input_dropout(self.scale(graph.x)), graph)
        if not bool(self.is_global):
            return local
        far = self.global_norm(local)
        for attention in self.attentions:
            far = _attend(attention, far, graph)
        return cast(Tensor, far)

    def _local(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        levels = []
        layers = (self.gates, self.convolutions, self.residuals, self.norms, self.product_norms)
        for gate, convolution, residual, norm, product_norm in zip(*layers, strict=True):
            hidden = self.dropout(F.relu(norm(convolution(x, graph) + residual(x))))
            x = (1 - self.beta) * product_norm(F.relu(gate(x)) * hidden) + self.beta * hidden
            levels.append(x)
        total: Tensor = sum(levels[1:], levels[0])
        return total


def _attend(attention: nn.Module, x: Tensor, graph: OpponentGraph) -> Tensor:
    """Attention among the nodes of each graph."""
    # One graph after the other: PyG's SGFormer attention treats the padding of shorter graphs as nodes.
    lengths = torch.bincount(graph.members(), minlength=graph.num_graphs).tolist()
    return torch.cat([attention(part[None]).squeeze(0) for part in torch.split(x, lengths)])
