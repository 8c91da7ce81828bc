"""GCN, GraphSAGE, GAT, GIN and Dir-GNN with norm, residual, dropout, jumping knowledge and any depth.

The recipe is that of "Classic GNNs are Strong Baselines" (Luo, Shi and Wu, 2024): an optional linear map,
then layers of convolution plus a linear map of their input, norm, ReLU and dropout; the output is read from
the last layer or the sum of all of them.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline.config.settings import ModelConfig
from pipeline.models.opponents.base import Opponent, make_norm
from pipeline.models.opponents.inputs import OpponentGraph
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Task


class GraphConvolution(nn.Module):
    """D^-½ (A + I) D^-½ X W + b (Kipf and Welling, 2017)."""

    def __init__(self, settings: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(self.linear.weight.new_zeros(out_channels))
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        return multiply(graph, "symmetric", x, self.linear) + self.bias


class MeanConvolution(nn.Module):
    """W_1 x + W_2 · the mean over neighbours (Hamilton, Ying and Leskovec, 2017)."""

    def __init__(self, settings: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_channels, out_channels, bias=False)
        self.neighbours = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        mean = graph.operator("mean").multiply(x)
        both: Tensor = self.own(x) + self.neighbours(mean)
        return both


class SumConvolution(nn.Module):
    """MLP((1 + ε) x + the sum over neighbours) (Xu et al., 2019)."""

    def __init__(self, settings: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(
            nn.Linear(in_channels, out_channels),
            make_norm(settings.opponent.norm, out_channels),
            nn.ReLU(),
            nn.Linear(out_channels, out_channels),
        )

    def forward(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        summed: Tensor = self.mlp((1 + self.epsilon) * x + graph.operator("sum").multiply(x))
        return summed


class DirectedConvolution(nn.Module):
    """α · out-neighbours + (1 − α) · in-neighbours, each with its own weights (Rossi et al., 2023)."""

    def __init__(self, settings: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.alpha = settings.opponent.alpha
        self.outward = nn.Linear(in_channels, out_channels)
        self.inward = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        outward = multiply(graph, "out", x, self.outward)
        inward = multiply(graph, "in", x, self.inward)
        return self.alpha * outward + (1 - self.alpha) * inward


class AttentionConvolution(nn.Module):
    """PyG's GATConv (Veličković et al., 2018); its heads divide the channels among them."""

    def __init__(self, settings: ModelConfig, in_channels: int, out_channels: int) -> None:
        super().__init__()
        # PyG takes seconds to import, and only attention needs it.
        from torch_geometric.nn import GATConv

        heads = settings.opponent.attention_heads
        if out_channels % heads:
            raise UserError(
                f"Expected 'model.hidden_channels' to be a multiple of the {heads} heads of "
                f"'{settings.name}' (got {out_channels})"
            )
        self.attention = GATConv(in_channels, out_channels // heads, heads, add_self_loops=False)

    def forward(self, x: Tensor, graph: OpponentGraph) -> Tensor:
        attended: Tensor = self.attention(x, graph.edge_index())
        return attended


_CONVOLUTIONS: dict[str, Callable[[ModelConfig, int, int], nn.Module]] = {
    "gcn": GraphConvolution,
    "sage": MeanConvolution,
    "gin": SumConvolution,
    "gat": AttentionConvolution,
    "dirgnn": DirectedConvolution,
}


def multiply(graph: OpponentGraph, kind: str, x: Tensor, linear: nn.Linear) -> Tensor:
    """An operator times a linear map of x, in the order that multiplies fewer columns with the graph."""
    operator = graph.operator(kind)  # type: ignore[arg-type]
    if linear.in_features < linear.out_features:
        product = F.linear(operator.multiply(x), linear.weight)
    else:
        product = operator.multiply(F.linear(x, linear.weight))
    bias: Tensor | None = linear.bias
    return product if bias is None else product + bias


class ConvolutionalOpponent(Opponent):
    """A stack of one kind of convolution, chosen by `settings.name`."""

    def __init__(self, settings: ModelConfig, num_features: int, out_channels: int, task: Task) -> None:
        super().__init__(settings, num_features, out_channels, task)
        recipe, channels = settings.opponent, settings.hidden_channels
        convolution = _CONVOLUTIONS[settings.name]
        self.input = nn.Linear(num_features, channels) if recipe.input_layer else None
        widths = [channels if recipe.input_layer else num_features] + [channels] * (recipe.layers - 1)
        self.convolutions = nn.ModuleList(convolution(settings, width, channels) for width in widths)
        self.residuals = nn.ModuleList(
            nn.Linear(width, channels) if recipe.residual else nn.Identity() for width in widths
        )
        self.norms = nn.ModuleList(make_norm(recipe.norm, channels) for _ in widths)
        self.residual, self.jumping = recipe.residual, recipe.jumping
        self.input_dropout = nn.Dropout(recipe.input_dropout)

    def encode(self, graph: OpponentGraph) -> Tensor:
        x: Tensor = self.input_dropout(self.scale(graph.x))
        if self.input is not None:
            x = self.dropout(self.input(x))
        levels = []
        for convolution, residual, norm in zip(self.convolutions, self.residuals, self.norms, strict=True):
            hidden = convolution(x, graph)
            hidden = norm(hidden + residual(x) if self.residual else hidden)
            x = self.dropout(F.relu(hidden))
            levels.append(x)
        if self.jumping == "max":
            return torch.stack(levels).amax(0)
        total: Tensor = sum(levels[1:], levels[0]) if self.jumping == "sum" else x
        return total
