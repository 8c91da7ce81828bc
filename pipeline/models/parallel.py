"""A model as a rank runs it: replicas divide the rows of a step, or the heads of a whole graph."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, autograd, nn
from torch.nn.parallel import DistributedDataParallel

import cocn
from cocn import GraphBatch
from pipeline.config.settings import ModelConfig
from pipeline.models.networks import Network, streams
from pipeline.runtime.errors import UserError


def distribute(
    model: Network, settings: ModelConfig, rank: int, world_size: int, *, batched: bool = False
) -> nn.Module:
    """The model as this rank runs it; gradients are averaged over ranks.

    Args:
        model: the model.
        settings: its configuration.
        rank: number of this rank.
        world_size: number of ranks.
        batched: whether ranks divide the graphs of a batch instead of the heads of one graph.
    """
    network: nn.Module = _InParts(model) if batched else model
    if world_size == 1:
        return network
    if isinstance(model, cocn.CoCN) and not streams(settings) and not batched:
        network = _HeadShare(model, rank, world_size)
    # With it, buckets keep their layout, so the order of sums, and with it every bit, is the same after a
    # restart; and features that are switched off may leave parameters without a gradient.
    return DistributedDataParallel(network, find_unused_parameters=True, gradient_as_bucket_view=True)


class _InParts(nn.Module):
    """A model that reads the graphs of a step in parts of similar size, to keep padding small."""

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: GraphBatch | Sequence[GraphBatch]) -> Tensor:
        """Outputs of all parts, one after the other."""
        parts = [batch] if isinstance(batch, GraphBatch) else batch
        return torch.cat([self.model(part) for part in parts])


class _HeadShare(nn.Module):
    """A full-graph model that computes some of the heads; other ranks compute the others.

    Heads are independent until they are concatenated, and a linear map of their concatenation is a sum of
    linear maps of the heads: each rank maps its own, and the ranks' logits are summed.

    Args:
        model: the model, with all its parameters.
        rank: number of this rank.
        world_size: number of ranks.

    Raises:
        UserError: if there are more ranks than heads.
    """

    def __init__(self, model: cocn.CoCN, rank: int, world_size: int) -> None:
        super().__init__()
        if world_size > model.num_heads:
            raise UserError(
                f"Expected 'resources.workers' to be at most the {model.num_heads} heads that they share "
                f"(got {world_size})"
            )
        self.model = model
        self.world_size = world_size
        self.heads = slice(model.num_heads * rank // world_size, model.num_heads * (rank + 1) // world_size)

    def forward(self, graph: GraphBatch) -> Tensor:
        """Logits of every node, the same on every rank."""
        model, channels = self.model, self.model.hidden_channels
        embedded = model.dropout(model.embed(graph, self.heads))
        weight = model.out.weight[:, self.heads.start * channels : self.heads.stop * channels]
        return _sum_over_ranks(F.linear(embedded, weight, model.out.bias / self.world_size))


def _sum_over_ranks(value: Tensor) -> Tensor:
    """Sum over ranks that all continue with the same value, each accounting for its share of the loss."""
    total: Tensor = _SumOverRanks.apply(value)  # type: ignore[no-untyped-call]
    return total


class _SumOverRanks(autograd.Function):
    @staticmethod
    def forward(ctx: autograd.function.FunctionCtx, value: Tensor) -> Tensor:
        total = value.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: autograd.function.FunctionCtx, gradient: Tensor) -> Tensor:
        # Every rank has the same gradient, so no communication is needed.
        return gradient * dist.get_world_size()
