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
from torch import Tensor
from torch.autograd.function import once_differentiable

from cocn.windows import chunks, part

#: Places covered by one block of the scan: a block is one small matrix product.
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


def gather_sequence(
    x_BNC: Tensor, order_BHN: Tensor, rank_BHN: Tensor, gate_BHN: Tensor | None = None
) -> Tensor:
    """P diag(γ) x for every head, place-major. Returns [N, G, C]."""
    return _Gather.apply(x_BNC, gate_BHN, order_BHN, rank_BHN)


def scatter_sequence(
    h_NGC: Tensor, rank_BHN: Tensor, slots_T: Tensor, gate_BHN: Tensor | None = None
) -> Tensor:
    """diag(γ) Pᵀ h for every head and the nodes in these slots of the padded [B, N]. Returns [T, H, C]."""
    return _Scatter.apply(h_NGC, gate_BHN, rank_BHN, slots_T)


class _Gather(torch.autograd.Function):
    """Gather by a permutation; its backward gathers by the inverse, which beats a scatter.

    A gate is 1, so it costs the forward pass nothing; its gradient is the inner product of a row with
    the gradient of that row.
    """

    @staticmethod
    def forward(ctx, x, gate, order, rank):  # type: ignore[no-untyped-def]
        sequence = _take(x, order)
        ctx.save_for_backward(x, order, rank)
        return sequence

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, order, rank = ctx.saved_tensors
        graphs, heads, length = order.shape
        by_node = _take_back(grad, rank)
        grad_x = by_node.sum(2) if ctx.needs_input_grad[0] else None
        grad_gate = None
        if ctx.needs_input_grad[1]:
            grad_gate = _inner(by_node.flatten(0, 1), x.reshape(graphs * length, 1, -1))
            grad_gate = grad_gate.view(graphs, length, heads).transpose(1, 2)
        return grad_x, grad_gate, None, None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, gate, rank, slots):  # type: ignore[no-untyped-def]
        graphs, heads, _ = rank.shape
        sequences = torch.arange(graphs * heads, device=rank.device).view(graphs, heads, 1)
        rows = (rank * (graphs * heads) + sequences).transpose(1, 2).reshape(-1, heads)[slots].view(-1)
        by_node = h.reshape(-1, h.size(-1)).index_select(0, rows).view(slots.numel(), heads, -1)
        ctx.save_for_backward(by_node, rows, slots)
        ctx.shape, ctx.rank_shape = h.shape, rank.shape
        return by_node

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        by_node, rows, slots = ctx.saved_tensors
        graphs, heads, length = ctx.rank_shape
        grad_h = _put_rows(grad.reshape(-1, grad.size(-1)), rows, graphs * heads * length)
        grad_gate = None
        if ctx.needs_input_grad[1]:
            grad_gate = grad.new_zeros(graphs * length, heads).index_copy_(0, slots, _inner(grad, by_node))
            grad_gate = grad_gate.view(graphs, length, heads).transpose(1, 2)
        return grad_h.view(ctx.shape), grad_gate, None, None


def _put_rows(x: Tensor, rows: Tensor, size: int) -> Tensor:
    """Rows of x at the given places, zeros elsewhere: a gather, twice as fast as a put."""
    source = torch.zeros(size, dtype=torch.long, device=x.device)
    source[rows] = torch.arange(rows.numel(), device=x.device)
    out = x.index_select(0, source)
    if rows.numel() < size:
        out[torch.ones(size, dtype=torch.bool, device=x.device).index_fill_(0, rows, False)] = 0
    return out


def _inner(x_NGC: Tensor, y_NGC: Tensor) -> Tensor:
    """Inner products over the channels, [N, G], without forming the full product."""
    out = x_NGC.new_empty(x_NGC.shape[:2])
    for chunk in chunks(x_NGC.size(0), x_NGC):
        torch.sum(part(x_NGC, chunk) * part(y_NGC, chunk), -1, out=part(out, chunk))
    return out


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
        return _Filter.apply(x, tau, lengths_G, transpose)


class _Filter(torch.autograd.Function):
    """The filter is linear: its backward is the transposed filter."""

    @staticmethod
    def forward(ctx, x, tau, lengths, transpose):  # type: ignore[no-untyped-def]
        ctx.tau, ctx.lengths, ctx.transpose = tau, lengths, transpose
        return _filter(x, tau, lengths, transpose)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        if ctx.lengths is not None:
            # Padded places are zero in the forward pass, but gradients may well arrive there.
            grad = grad * _inside(grad, ctx.lengths).unsqueeze(-1)
        # Autocast may be on here although it was off going forward.
        with torch.autocast(grad.device.type, enabled=False):
            return _filter(grad, ctx.tau, ctx.lengths, not ctx.transpose), None, None, None


def _filter(x: Tensor, tau: float, lengths_G: Tensor | None, transpose: bool) -> Tensor:
    if lengths_G is None and x.size(0) <= DIRECT_LENGTH:
        circulant = circulant_matrix(x.size(0), tau, x)
        return ((circulant.t() if transpose else circulant) @ x.flatten(1)).view_as(x)
    scanned = linear_scan(x, tau, reverse=transpose)
    if lengths_G is None:
        return _close_circle(scanned, tau, transpose)
    return _close_padded_circles(scanned, tau, lengths_G, transpose)


def circulant_matrix(length: int, tau: float, like: Tensor) -> Tensor:
    """F_τ, for sequences short enough to store it."""
    places = torch.arange(length, device=like.device)
    return torch.exp(-tau * ((places[:, None] - places) % length).to(like.dtype))


def _close_circle(scanned: Tensor, tau: float, transpose: bool) -> Tensor:
    """Carry the end of the scan over to its beginning, in place; it fades within the taps of the filter."""
    length = scanned.size(0)
    taps = min(num_taps(tau, scanned.dtype), length)
    around = math.exp(-tau * length)
    end = scanned[0 if transpose else -1].clone()
    if around > torch.finfo(scanned.dtype).eps / 2:
        scanned *= 1 - around
    wrap = _decay(taps, tau, scanned)[:, None, None]
    if transpose:
        scanned[length - taps :].addcmul_(wrap.flip(0), end)
    else:
        scanned[:taps].addcmul_(wrap, end)
    return scanned


def _close_padded_circles(scanned: Tensor, tau: float, lengths_G: Tensor, transpose: bool) -> Tensor:
    places = torch.arange(scanned.size(0), device=scanned.device)[:, None]
    if transpose:
        end = scanned[:1].clone()
        distance = lengths_G - places
    else:
        last = (lengths_G - 1).clamp(min=0).view(1, -1, 1).expand(1, -1, scanned.size(-1))
        end = scanned.gather(0, last)
        distance = places + 1
    inside = _inside(scanned, lengths_G)
    # Past the end of a transposed sequence the distance is negative: clamped, its exponential stays finite.
    wrap = torch.exp(-tau * distance.clamp(min=0).to(scanned.dtype)) * inside
    keep = (1 - torch.exp(-tau * lengths_G.to(scanned.dtype))) * inside
    return scanned.mul_(keep.unsqueeze(-1)).addcmul_(end, wrap.unsqueeze(-1))


def _inside(x_NGC: Tensor, lengths_G: Tensor) -> Tensor:
    return torch.arange(x_NGC.size(0), device=x_NGC.device)[:, None] < lengths_G


def linear_scan(x_NGC: Tensor, tau: float, reverse: bool = False) -> Tensor:
    """z_i = x_i + exp(−τ) z_{i−1} (or z_{i+1}): a triangular product in blocks, a scan of carries across.

    No autograd.
    """
    length, channels = x_NGC.size(0), math.prod(x_NGC.shape[1:])
    block = min(SCAN_BLOCK, length)
    whole = length // block * block
    x, z = x_NGC.reshape(length, channels), x_NGC.new_empty(length, channels)
    places = torch.arange(block, device=x.device)
    distance = (places[:, None] - places).to(x.dtype)
    triangle = torch.where(distance >= 0, torch.exp(-tau * distance.clamp(min=0)), 0.0)
    if reverse:
        triangle = triangle.t()
    blocks = z[:whole].view(-1, block, channels)
    torch.bmm(triangle.expand(blocks.size(0), -1, -1), x[:whole].view(-1, block, channels), out=blocks)
    rest = length - whole
    if rest:
        torch.matmul(triangle[:rest, :rest], x[whole:], out=z[whole:])
    if length > block:
        _carry(z, blocks, tau, reverse)
    return z.view(x_NGC.shape)


def _carry(z: Tensor, blocks: Tensor, tau: float, reverse: bool) -> None:
    """Add what the earlier (later, in reverse) blocks carry over to every block, in place."""
    num_blocks, block, _ = blocks.shape
    taps = min(num_taps(tau, z.dtype), block)
    decay = _decay(taps, tau, z)[:, None]
    rest = z[num_blocks * block :]
    if reverse:
        ends = torch.cat([blocks[1:, 0], rest[:1]])
        carries = _scan_carries(ends, tau * block, reverse)
        blocks[: carries.size(0), block - taps :].addcmul_(decay.flip(0), carries[:, None])
        return
    carries = _scan_carries(blocks[:, -1], tau * block, reverse)
    blocks[1:, :taps].addcmul_(decay, carries[:-1, None])
    if rest.size(0):
        rest[:taps].addcmul_(decay[: rest.size(0)], carries[-1:])


def _scan_carries(ends: Tensor, tau: float, reverse: bool) -> Tensor:
    if tau >= -math.log(torch.finfo(ends.dtype).tiny):
        return ends.clone()
    return linear_scan(ends[:, None], tau, reverse)[:, 0]


def _decay(taps: int, tau: float, like: Tensor) -> Tensor:
    """exp(−τu) for u = 1…taps."""
    return torch.exp(-tau * torch.arange(1, taps + 1, device=like.device, dtype=like.dtype))


def num_taps(tau: float | None, dtype: torch.dtype) -> int:
    """Steps after which exp(−τu) is below the resolution of the type."""
    return 0 if tau is None else math.ceil(-math.log(torch.finfo(dtype).eps) / tau)
