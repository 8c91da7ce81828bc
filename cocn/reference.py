"""The paper's equations transcribed literally and densely: oracle for the tests, baseline for benchmarks.

Nothing here is fast. Every matrix the paper writes is formed, one graph and one head at a time.

Implements: eq:absolute-pos, eq:approximate-back, eq:permutation, eq:sparse-permutation, eq:clique-conv,
eq:coco-layer-node, eq:coco-layer-edge, residual, inception and transposed convolutions, re-permutation

Legend: n nodes, c and o channels, k kernel size, s step, e edge channels.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from cocn.compressed import CompressedLayer
from cocn.diagonal import DiagonalConvolution
from cocn.graphs import GraphBatch
from cocn.models import CoCN
from cocn.ranking import PAIRWISE_LIMIT, RankGradient, normalises
from cocn.transposed import TransposedLayer


def absolute_positions(r_A: Tensor, gradient: str = "pairwise") -> Tensor:
    """r = sgn(r_A 1ᵀ − 1 r_Aᵀ) 1 with a surrogate gradient; equal positions rank in the order given."""
    n = r_A.numel()
    difference = r_A[:, None] - r_A[None, :]
    earlier = torch.ones(n, n, device=r_A.device).tril(-1).bool()
    after = (difference > 0) | ((difference == 0) & earlier)
    hard = after.to(r_A.dtype).sum(1)
    if gradient == "pairwise":
        soft = torch.sigmoid(torch.relu(difference)).sum(1)
    else:
        soft = 0.25 * (hard * r_A - (after.to(r_A.dtype) * r_A[None, :]).sum(1))
    return hard + (soft - soft.detach())


def permutation_matrix(r: Tensor, tau: float | None) -> Tensor:
    """P̂ = exp(−τ[(m1ᵀ − 1rᵀ + n) mod n]), or the standard permutation with its gate for τ = None."""
    n = r.numel()
    m = torch.arange(n, dtype=r.dtype, device=r.device)
    if tau is not None:
        return torch.exp(-tau * torch.remainder(m[:, None] - r[None, :] + n, n))
    hard = (m[:, None] == r.detach()[None, :]).to(r.dtype)
    return hard * torch.exp(r - r.detach())[None, :]


def dense_adjacency(
    source: Tensor, target: Tensor, values: Tensor | None, n: int, dtype: torch.dtype
) -> Tensor:
    """[n, n, e] edge features."""
    if values is None:
        values = torch.ones(source.numel(), 1, dtype=dtype, device=source.device)
    zeros = torch.zeros(n, n, values.size(1), dtype=dtype, device=source.device)
    return zeros.index_put((source, target), values.to(dtype), accumulate=True)


def kernel_of(layer: DiagonalConvolution) -> Tensor:
    """w_{p,q} of eq:clique-conv as [k, k, e, o], zero on its diagonal."""
    k = layer.kernel_size
    upper, lower = torch.triu_indices(k, k, 1), torch.triu_indices(k, k, 1).flip(0)
    w = layer.edge_weight.new_zeros(k, k, layer.edge_channels, layer.out_channels)
    w = w.index_put((upper[0], upper[1]), layer.edge_weight[0].transpose(0, 1))
    return w.index_put((lower[0], lower[1]), layer.edge_weight[1].transpose(0, 1))


def diagonal_convolution(layer: DiagonalConvolution, E: Tensor | None, H: Tensor, s: int) -> Tensor:
    """K_i(E, H) at i = 0, s, 2s, …, zeros padding the end."""
    n, k = H.size(0), layer.kernel_size
    windows = torch.arange(0, n, s, device=H.device)[:, None] + torch.arange(k, device=H.device)
    out = layer.bias.expand(windows.size(0), -1)
    if layer.in_channels:
        padded = F.pad(H, (0, 0, 0, k))
        out = out + torch.einsum("ipc,pco->io", padded[windows], layer.node_weight)
    if E is not None and layer.edge_channels:
        padded = F.pad(E, (0, 0, 0, k, 0, k))
        blocks = padded[windows[:, :, None], windows[:, None, :]]
        out = out + torch.einsum("ipqe,pqeo->io", blocks, kernel_of(layer))
    return out


def tri(E: Tensor, k: int) -> Tensor:
    """triu(E, k) + tril(E, −k) with the gap closed."""
    upper = torch.triu(F.pad(E, (0, 0, 0, k - 1))[:, k - 1 :].movedim(-1, 0), 1)
    lower = torch.tril(F.pad(E, (0, 0, 0, 0, 0, k - 1))[k - 1 :].movedim(-1, 0), -1)
    return (upper + lower).movedim(0, -1)


def max_pool(E: Tensor, k: int, s: int) -> Tensor:
    """Standard 2D max pooling, zeros padding the end."""
    n = E.size(0)
    missing = (-(-n // s) - 1) * s + k - n
    padded = F.pad(E, (0, 0, 0, max(missing, 0), 0, max(missing, 0)))
    blocks = padded.unfold(0, k, s).unfold(1, k, s)
    return blocks.flatten(-2).amax(-1)


def average_pool(H: Tensor, k: int, s: int) -> Tensor:
    """Mean over windows of k, zeros padding the end."""
    n = H.size(0)
    windows = torch.arange(0, n, s, device=H.device)[:, None] + torch.arange(k, device=H.device)
    return F.pad(H, (0, 0, 0, k))[windows].mean(1)


def compressed_layer(layer: CompressedLayer, E: Tensor | None, H: Tensor) -> tuple[Tensor, Tensor | None]:
    """eq:coco-layer-node and eq:coco-layer-edge, with inception and residual."""
    k, s = layer.kernel_size, layer.step
    outputs = []
    for branch in cast("list[DiagonalConvolution]", layer.branches):
        sets = torch.relu(diagonal_convolution(branch, E, H, 1))
        outputs.append(average_pool(sets, k - branch.kernel_size + 1, s))
    out = torch.stack(outputs).mean(0)
    if layer.residual and branch.in_channels:
        out = out + average_pool(H, k, s)
    if E is not None:
        E = tri(E, k) if s == 1 else max_pool(E, k, s)
    return out, E


def dilate(H: Tensor, s: int, n: int) -> Tensor:
    """Place the sets s places apart in a sequence of n, zeros between."""
    out = H.new_zeros(n, H.size(1))
    out[::s] = H[: -(-n // s)]
    return out


def transposed_layer(layer: TransposedLayer, H: Tensor, skip: Tensor) -> Tensor:
    """Each place reads back over the k places up to itself of the dilated sequence."""
    n, k = skip.size(0), layer.kernel_size
    padded = F.pad(dilate(H, layer.step, n), (0, 0, k - 1, 0))
    windows = torch.arange(n, device=H.device)[:, None] + torch.arange(k, device=H.device)
    read = padded[windows]
    recovered = torch.einsum("jpc,poc->jo", read, layer.convolution.weight.flip(0)) + layer.convolution.bias
    if not layer.residual:
        return torch.relu(recovered) + skip
    return torch.relu(layer.gain * read.mean(1)) - recovered + skip


def forward(model: CoCN, graph: GraphBatch) -> Tensor:
    """Output of the network for the parameters of a model in evaluation mode, by the dense equations."""
    r_A_all = model.regress_positions(graph)
    X_all = model.read_features(model.graph_features(graph))
    outputs, start = [], 0
    for number, n in enumerate(graph.lengths.tolist()):
        nodes = slice(start, start + n)
        own = graph.edges.of_graph(number)
        A = (
            dense_adjacency(own.source, own.target, own.values, n, X_all.dtype)
            if model.structure_features
            else None
        )
        heads = [_head(model, X_all[nodes], A, r_A, graph.max_length) for r_A in r_A_all[nodes].unbind(1)]
        outputs.append(torch.cat(heads, dim=-1))
        start += n
    if model.up is None:
        return model.out(torch.stack(outputs))
    arranged = torch.cat(outputs)
    in_order = torch.empty_like(arranged).index_copy(0, graph.arrangement, arranged)
    return model.out(graph.symmetrise(in_order))


def _head(model: CoCN, X: Tensor, A: Tensor | None, r_A: Tensor, longest: int) -> Tensor:
    gradient: RankGradient = model.rank_gradient or ("pairwise" if longest <= PAIRWISE_LIMIT else "taylor")
    if normalises(model.normalise_rank_gradient, gradient):
        r_A = r_A.detach() + (r_A - r_A.detach()) / r_A.numel()
    P = permutation_matrix(absolute_positions(r_A, gradient), model.tau)
    E = None if A is None else torch.einsum("ij,jke,lk->ile", P, A, P)
    levels = [P @ X]
    for layer in cast("list[CompressedLayer]", model.down.layers):
        H, E = compressed_layer(layer, E, levels[-1])
        levels.append(H)
    if model.up is None:
        return levels[-1].amax(0)
    H = levels[-1]
    for up, skip in zip(cast("list[TransposedLayer]", model.up.layers), reversed(levels[:-1]), strict=True):
        H = transposed_layer(up, H, skip)
    return P.t() @ H
