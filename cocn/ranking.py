"""Absolute positions: the rank of every node, with a surrogate gradient.

Implements: eq:absolute-pos, eq:approximate-back

Legend: B graphs, H heads, N nodes (padded to the longest graph).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

RankGradient = Literal["pairwise", "taylor"]
NormaliseRankGradient = bool | Literal["all"]

#: Above this many nodes the O(N²) pairwise surrogate gives way to the O(N log N) Taylor form.
PAIRWISE_LIMIT = 512


class Ranks(NamedTuple):
    """The order of each sequence and the rank of each node in it.

    Attributes:
        order_BHN: node at each place of the sequence, padding last.
        rank_BHN: place of each node, integers.
        rank_grad_BHN: the same values as floats, carrying the surrogate gradient.
    """

    order_BHN: Tensor
    rank_BHN: Tensor
    rank_grad_BHN: Tensor


def rank(
    position_BHN: Tensor,
    lengths_B: Tensor | None = None,
    gradient: RankGradient = "pairwise",
    normalise: bool = False,
) -> Ranks:
    r"""Rank approximate positions in ascending order; ties keep the order given.

    .. math:: \mathbf{r} = \texttt{sgn}(\mathbf{r}_A\mathbf{1}^\top - \mathbf{1}\mathbf{r}_A^\top)\mathbf{1}

    Backward, ``pairwise`` differentiates sigmoid(ReLU(·)) in place of sgn; ``taylor`` its first-order
    expansion, ¼(r_j g_j − Σ_{i: r_i > r_j} g_i), by one reverse cumulative sum.

    Deviation: the paper's eq:approximate-back prints ¼ on the first term only; it belongs to both.
    Deviation: with ``normalise`` the Taylor gradient is divided by the number of nodes. It is a sum over
    all pairs, so without it the step on the positions grows with the graph: from a few hundred nodes on it
    makes up nearly all of the gradient's norm, so that plain gradient descent diverges and clipping stalls
    the rest of the network. Adam without clipping is unaffected. The pairwise gradient is such a sum as
    well; models divide it only where asked to (``normalise_rank_gradient`` of :class:`cocn.models.CoCN`).

    Args:
        position_BHN: approximate positions r_A.
        lengths_B: number of nodes of each graph; None where nothing is padded.
        gradient: the surrogate of the backward pass.
        normalise: divide the gradient by the number of nodes.
    """
    keys = position_BHN.detach()
    if lengths_B is not None:
        places = torch.arange(keys.size(-1), device=keys.device)
        keys = keys.masked_fill(places >= lengths_B[:, None, None], torch.inf)
    order = keys.argsort(dim=-1, stable=True)
    ranks = invert(order)
    if not position_BHN.requires_grad:
        return Ranks(order, ranks, ranks.to(position_BHN.dtype))
    counts = _counts(position_BHN, lengths_B)
    scale = 1.0 / counts if normalise else torch.ones_like(counts)
    surrogate = _PairwiseRank if gradient == "pairwise" else _TaylorRank
    return Ranks(order, ranks, surrogate.apply(position_BHN, order, ranks, counts, scale))


def invert(order: Tensor) -> Tensor:
    """Inverse of the permutations along the last dimension."""
    places = torch.arange(order.size(-1), device=order.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def _counts(position_BHN: Tensor, lengths_B: Tensor | None) -> Tensor:
    if lengths_B is None:
        return position_BHN.new_full((1, 1, 1), position_BHN.size(-1))
    return lengths_B.to(position_BHN.dtype)[:, None, None]


class _PairwiseRank(torch.autograd.Function):
    """Gradient of Σ_j sigmoid(ReLU(r_A,i − r_A,j)) at the pairs that the ranks order."""

    @staticmethod
    def forward(ctx, position, order, ranks, counts, scale):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(position, ranks, counts, scale)
        return ranks.to(position.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        position, ranks, counts, scale = ctx.saved_tensors
        slope = pairwise_slopes(position, ranks)
        valid = ranks < counts
        slope = slope * valid.unsqueeze(-1) * valid.unsqueeze(-2)
        grad_position = grad * slope.sum(-1) - (grad.unsqueeze(-1) * slope).sum(-2)
        return grad_position * scale, None, None, None, None


def pairwise_slopes(position: Tensor, ranks: Tensor) -> Tensor:
    """Slope of the sigmoid at each pair (i, j) with i ranked after j; 0 for all other pairs.

    The slope is an even function of the difference, so a pair that the circular order of a segment places
    in reverse (across the wrap) has the slope of its distance.
    """
    difference = position.unsqueeze(-1) - position.unsqueeze(-2)
    after = (ranks.unsqueeze(-1) > ranks.unsqueeze(-2)) & (difference != 0)
    sigmoid = torch.sigmoid(difference)
    return sigmoid * (1 - sigmoid) * after


class _TaylorRank(torch.autograd.Function):
    """Gradient of ¼(r_i r_A,i − Σ_{j: r_j < r_i} r_A,j), in sorted order."""

    @staticmethod
    def forward(ctx, position, order, ranks, counts, scale):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(order, ranks, counts, scale)
        return ranks.to(position.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        order, ranks, counts, scale = ctx.saved_tensors
        grad = grad * (ranks < counts)
        in_order = grad.gather(-1, order)
        # Summed from the end: total minus prefix would leave rounding errors where nothing comes later.
        later = in_order.flip(-1).cumsum(-1).flip(-1) - in_order
        grad_position = 0.25 * (ranks * grad - later.gather(-1, ranks))
        return grad_position * scale, None, None, None, None


def normalises(setting: NormaliseRankGradient, gradient: RankGradient) -> bool:
    """Whether a model with this setting divides this gradient by the number of nodes."""
    return setting == "all" or (bool(setting) and gradient == "taylor")


def window_ranks(position_RHS: Tensor, normalise: bool = False) -> Tensor:
    """Ranks 0…S−1 of the nodes of each segment, in their circular order.

    Deviation: ranking the raw values instead would rotate a segment that crosses the wrap and move its
    own node away from the first place.

    Shapes:
        position_RHS: R records, H heads, S places of a segment.
    """
    places = torch.arange(position_RHS.size(-1), device=position_RHS.device).expand_as(position_RHS)
    if not position_RHS.requires_grad:
        return places.to(position_RHS.dtype)
    counts = _counts(position_RHS, None)
    scale = 1.0 / counts if normalise else torch.ones_like(counts)
    return _PairwiseRank.apply(position_RHS, places, places, counts, scale)
