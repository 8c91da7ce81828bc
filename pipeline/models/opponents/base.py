"""What all opponents share: a representation, one linear map at the end, and inputs of any kind."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocn import GraphBatch
from pipeline.config.settings import ModelConfig
from pipeline.models.opponents.inputs import OpponentGraph, RowBatch, from_batch
from pipeline.store.arrays import Task

OpponentInput = OpponentGraph | RowBatch


class Opponent(nn.Module):
    """A network that predicts for every node it reads, or for every graph.

    Args:
        settings: sizes and switches.
        num_features: columns of x.
        out_channels: classes; for links twice the size of an embedding.
        task: what is predicted for; graphs are represented by the mean or sum of their nodes.
        width: channels of the representation before the last linear map.

    Shapes:
        - **input:** a :class:`cocn.GraphBatch`, an :class:`OpponentGraph` or a :class:`RowBatch`
        - **output:** [T, out], in the order of the input, or [B, out] for graphs
    """

    positions: ClassVar[None] = None

    def __init__(
        self,
        settings: ModelConfig,
        num_features: int,
        out_channels: int,
        task: Task,
        width: int | None = None,
    ) -> None:
        super().__init__()
        self.pooling = settings.pooling if task == "graph" else None
        self.scale = Standardisation(num_features)
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(width or settings.hidden_channels, out_channels)
        self._last: tuple[GraphBatch, OpponentGraph] | None = None

    def forward(self, batch: GraphBatch | OpponentInput) -> Tensor:
        """Logits of every node or graph."""
        logits: Tensor = self.out(self.embed(batch))
        return logits

    def embed(self, batch: GraphBatch | OpponentInput) -> Tensor:
        """Representation before the last linear map, [T, C] or [B, C]."""
        if isinstance(batch, RowBatch):
            return self.encode_rows(batch)
        graph = self._convert(batch) if isinstance(batch, GraphBatch) else batch
        hidden = self.encode(graph)
        if self.pooling is not None:
            return _pool(hidden, graph, self.pooling)
        if not isinstance(batch, GraphBatch):
            return hidden
        places = torch.arange(batch.arrangement.numel(), device=hidden.device)
        return hidden[torch.empty_like(places).scatter_(0, batch.arrangement, places)]

    def encode(self, graph: OpponentGraph) -> Tensor:
        """Representation of every node of a graph."""
        raise NotImplementedError

    def encode_rows(self, rows: RowBatch) -> Tensor:
        """Representation of the given nodes."""
        raise TypeError(f"Expected {type(self).__name__} to be given a graph (got rows)")

    def start_epoch(self, epoch: int) -> None:
        """Called before every epoch, for networks that train in phases."""

    def _convert(self, batch: GraphBatch) -> OpponentGraph:
        # The graph of a link task is the same in every step.
        if self._last is None or self._last[0] is not batch:
            self._last = (batch, from_batch(batch))
        return self._last[1]


def _pool(hidden: Tensor, graph: OpponentGraph, pooling: str) -> Tensor:
    """Sum or mean over the nodes of each graph, [B, C]."""
    members = graph.members()
    sums = hidden.new_zeros(graph.num_graphs, hidden.size(1)).index_add(0, members, hidden)
    if pooling == "sum":
        return sums
    return sums / torch.bincount(members, minlength=graph.num_graphs).clamp(min=1)[:, None].to(sums.dtype)


class Standardisation(nn.Module):
    """Columns standardised to mean 0 and deviation 1 by statistics that are kept with the weights.

    Sparse columns, such as bags of words, are left as they are: a rare word would become a huge number.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("factor", torch.ones(columns))

    @torch.no_grad()
    def fit(self, rows: Tensor) -> None:
        """Estimate the statistics from the given rows."""
        if rows.size(0) < 2 or float((rows == 0).float().mean()) > _SPARSE_SHARE:
            return
        deviation, mean = torch.std_mean(rows.double(), dim=0)
        varies = deviation > 1e-6 * (1 + mean.abs())
        self.mean.copy_(mean)
        self.factor.copy_(torch.where(varies, 1 / deviation.clamp(min=1e-12), 1.0))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * self.factor


#: Features with more zeros than this are not standardised.
_SPARSE_SHARE = 0.8


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation that treats a single row as in evaluation, since it has no deviation."""

    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 1 or not self.training:
            return super().forward(x)
        normed: Tensor = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
        )
        return normed


class _UnitNorm(nn.Module):
    """Rows scaled to length 1."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=1)


def make_norm(name: str, channels: int) -> nn.Module:
    """A normalisation of channels by name."""
    if name == "batch":
        return BatchNorm(channels)
    if name == "unit":
        return _UnitNorm()
    return nn.LayerNorm(channels) if name == "layer" else nn.Identity()
