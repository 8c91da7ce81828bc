"""The relaxed permutation in linear time: gather, gate and a circular exponential filter.

Implements: eq:permutation, eq:sparse-permutation

Ranks are integers in the forward pass, so the n×n matrix of eq:permutation factorises exactly,

    P̂ = F_τ · P · diag(γ),   F_τ[i, j] = exp(−τ ((i − j) mod n)),   γ_j = exp(τ (r_j − stop_gradient(r_j))),

into a hard permutation P (a gather), a fixed circulant F_τ (a filter along the sequence) and a gate γ whose
value is 1 and whose gradient is τ. Values and gradients equal those of the dense formula.

Legend: B graphs, H heads, N places, G = B·H sequences, C channels, M edges, P planes, W width of the band.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

#: Places that one block of the scan covers: a block is one small matrix product.
SCAN_BLOCK = 32
#: Up to this length a filter is one product with the circulant matrix itself.
DIRECT_LENGTH = 64


def gate(rank_grad: Tensor, tau: float | None) -> Tensor:
    """γ: ones, with gradient τ in the ranks (1 for the standard permutation, τ = None).

    Deviation: eq:sparse-permutation prints exp(Rank − r); its gradient has the sign of eq:permutation only as
    exp(r − Rank).
    """
    slope = 1.0 if tau is None else tau
    return 1.0 + slope * (rank_grad - rank_grad.detach())


def gather_sequence(x_BNC: Tensor, order_BHN: Tensor, rank_BHN: Tensor) -> Tensor:
    """P x for every head, place-major. Returns [N, G, C]."""
    return _Gather.apply(x_BNC, order_BHN, rank_BHN)


def scatter_sequence(h_NGC: Tensor, order_BHN: Tensor, rank_BHN: Tensor) -> Tensor:
    """Pᵀ h for every head. Returns [B, N, H, C]."""
    return _Scatter.apply(h_NGC, order_BHN, rank_BHN)


class _Gather(torch.autograd.Function):
    """Gather by a permutation; its backward gathers by the inverse, which beats a scatter."""

    @staticmethod
    def forward(ctx, x, order, rank):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(order, rank)
        return _take(x, order)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        _, rank = ctx.saved_tensors
        return _take_back(grad, rank).sum(2), None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, order, rank):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(order, rank)
        return _take_back(h, rank)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        order, _ = ctx.saved_tensors
        graphs, heads, length = order.shape
        rows = _flat_rows(order) * heads + torch.arange(heads, device=order.device)[:, None]
        taken = grad.reshape(-1, grad.size(-1))[rows.permute(2, 0, 1).reshape(-1)]
        return taken.view(length, graphs * heads, -1), None, None


def _flat_rows(index_BHN: Tensor) -> Tensor:
    graphs, _, length = index_BHN.shape
    return index_BHN + torch.arange(graphs, device=index_BHN.device)[:, None, None] * length


def _take(x_BNC: Tensor, order_BHN: Tensor) -> Tensor:
    graphs, heads, length = order_BHN.shape
    rows = _flat_rows(order_BHN).permute(2, 0, 1).reshape(-1)
    return x_BNC.reshape(graphs * length, -1).index_select(0, rows).view(length, graphs * heads, -1)


def _take_back(h_NGC: Tensor, rank_BHN: Tensor) -> Tensor:
    graphs, heads, length = rank_BHN.shape
    sequences = torch.arange(graphs * heads, device=rank_BHN.device).view(graphs, heads, 1)
    rows = (rank_BHN * (graphs * heads) + sequences).permute(0, 2, 1).reshape(-1)
    return h_NGC.reshape(length * graphs * heads, -1).index_select(0, rows).view(graphs, length, heads, -1)


def circular_filter(
    x_NGC: Tensor, tau: float | None, lengths_G: Tensor | None = None, transpose: bool = False
) -> Tensor:
    """F_τ x (or F_τᵀ x) along the sequences; the identity for τ = None.

    Short sequences take one product with the circulant, long ones a scan in blocks, which is exact for every
    τ: with z the scan from zero, y_i = (1 − aⁿ) z_i + a^{i+1} z_{n−1} for a = exp(−τ).

    Args:
        x_NGC: sequences, zero past their length.
        tau: relaxation factor.
        lengths_G: length of each sequence; None where nothing is padded.
        transpose: apply the transposed filter.
    """
    if tau is None or x_NGC.size(0) == 0:
        return x_NGC
    with torch.autocast(x_NGC.device.type, enabled=False):
        x = x_NGC if x_NGC.dtype == torch.float64 else x_NGC.float()
        if lengths_G is None and x.size(0) <= DIRECT_LENGTH:
            circulant = circulant_matrix(x.size(0), tau, x)
            return ((circulant.t() if transpose else circulant) @ x.flatten(1)).view_as(x)
        return _filter_by_scan(x, tau, lengths_G, transpose)


def circulant_matrix(length: int, tau: float, like: Tensor) -> Tensor:
    """F_τ, for sequences short enough to hold it."""
    places = torch.arange(length, device=like.device)
    return torch.exp(-tau * ((places[:, None] - places) % length).to(like.dtype))


def _filter_by_scan(x: Tensor, tau: float, lengths_G: Tensor | None, transpose: bool) -> Tensor:
    size = x.size(0)
    lengths = torch.full((1,), size, device=x.device) if lengths_G is None else lengths_G
    places = torch.arange(size, device=x.device)[:, None]
    if transpose:
        scanned = linear_scan(x.flip(0), tau).flip(0)
        end = scanned[:1]
        distance = lengths - places
    else:
        scanned = linear_scan(x, tau)
        end = scanned[-1:] if lengths_G is None else _last_valid(scanned, lengths_G)
        distance = places + 1
    wrap = torch.exp(-tau * distance.to(x.dtype)) * (places < lengths)
    keep = (1 - torch.exp(-tau * lengths.to(x.dtype))) * (places < lengths)
    return scanned * keep[..., None] + end * wrap[..., None]


def _last_valid(x_NGC: Tensor, lengths_G: Tensor) -> Tensor:
    last = (lengths_G - 1).clamp(min=0).view(1, -1, 1).expand(1, -1, x_NGC.size(-1))
    return x_NGC.gather(0, last)


def linear_scan(x_NGC: Tensor, tau: float) -> Tensor:
    """z_i = x_i + exp(−τ) z_{i−1}, in blocks: a triangular product inside, a scan of the carries across."""
    length, *rest = x_NGC.shape
    block = min(SCAN_BLOCK, length)
    places = torch.arange(block, device=x_NGC.device)
    distance = (places[:, None] - places).to(x_NGC.dtype)
    triangle = torch.where(distance >= 0, torch.exp(-tau * distance), 0.0)
    padding = -length % block
    blocks = F.pad(x_NGC, (0, 0, 0, 0, 0, padding)).view(-1, block, math.prod(rest))
    scanned = triangle @ blocks
    if blocks.size(0) > 1:
        ends = F.pad(scanned[:-1, -1], (0, 0, 1, 0))
        if tau * block < -math.log(torch.finfo(x_NGC.dtype).tiny):
            ends = linear_scan(ends[:, None], tau * block)[:, 0]
        decay = torch.exp(-tau * (places + 1).to(x_NGC.dtype))
        scanned = torch.addcmul(scanned, decay[:, None], ends[:, None])
    return scanned.view(-1, *rest)[:length]


def num_taps(tau: float | None, dtype: torch.dtype) -> int:
    """Steps after which exp(−τu) is below the resolution of the type."""
    return 0 if tau is None else math.ceil(-math.log(torch.finfo(dtype).eps) / tau)
