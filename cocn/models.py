"""The CoCN family as one network: vanilla, expanded and sparse are its settings, segment is in `segmented`.

Legend: T nodes of all graphs, B graphs, N nodes of the longest, H heads, G = B·H sequences, C channels,
D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cocn.diagonal import Band
from cocn.edges import permuted_band
from cocn.graphs import GraphBatch, prepare
from cocn.heads import Task, max_over_sets, score_links
from cocn.networks import CompressionStack, RecoveryStack, StackSettings
from cocn.permutation import circular_filter, gate, gather_sequence, scatter_sequence
from cocn.positions import PositionRegression, Propagation
from cocn.propagation import NormalisedAdjacency
from cocn.ranking import PAIRWISE_LIMIT, NormaliseRankGradient, RankGradient, Ranks, normalises, rank
from cocn.ties import Ties
from cocn.transposed import RecoveryScale

PositionSource = Literal["explicit", "implicit", "fixed"]
#: Initial scale of the last linear map.
OUTPUT_GAIN = 0.25
ALL_HEADS = slice(None)


class CoCN(nn.Module):
    r"""Compressed Convolution Network (`"Scalable Graph Compressed Convolutions"`).

    Input module → permutation generation → compressed convolutions → output module. The four models of the
    paper are settings of this class; :class:`VanillaCoCN`, :class:`ExpandedCoCN`, :class:`SparseCoCN` and
    :class:`SegmentCoCN` name them.

    Args:
        in_channels: features of a node; 0 for graphs without any.
        hidden_channels: channels of the convolutions.
        out_channels: classes or outputs; for links twice the size of an embedding.
        task: what the output is for: every node, every graph, or pairs of nodes.
        num_heads: number of permutations; heads share all convolution parameters.
        kernel_size: k, or several for inception.
        tau: relaxation factor τ; None for the standard permutation.
        smoothness: t, the power of Ã in explicit position regression.
        unit_layers: L1, layers of unit step.
        pool_layers: L2, layers whose step is the kernel size.
        final_layer: one more layer of unit step at the end.
        residual: residual compressed and transposed convolutions.
        recovery_scale: how strongly pooled signals return to nodes in residual transposed convolutions: as
            the paper prints it or as its authors' code has it (see :class:`cocn.transposed.TransposedLayer`).
        dropout: dropout rate.
        feature_dropout: dropout rate of the input features.
        position_source: ``explicit`` regresses positions from x, ``implicit`` from structural positions,
            ``fixed`` takes one given column per head and learns none.
        position_channels: number of columns that positions are regressed from, if not those of x.
        propagation: propagate positions ``after`` the MLP or features ``before`` it.
        node_features: let the convolutions read node features.
        structure_features: let the convolutions read edge features.
        propagated_features: K for input features [X, ÃX, …, Ã^K X] in place of X.
        edge_channels: channels of the edge features.
        rank_gradient: surrogate gradient of ranks; None for pairwise on small graphs, taylor on large ones.
        normalise_rank_gradient: divide the taylor gradient by the number of nodes; ``"all"`` divides the
            pairwise one too. With True, the pairwise gradient stays that of the paper, and so the gradient of
            the positions is hundreds of times larger at 512 nodes than at 513, where taylor takes over by
            itself; take ``"all"`` for graphs on both sides of that, for clipping or for plain descent.
        ties: arrangement of nodes before ranking.
        self_loops: add self-loops to Ã.
        truncate: hops of the structural positions computed for small graphs.

    Shapes:
        - **input:** x [T, D], edge_index [2, M], or a ``Data``, a ``Batch`` or a :class:`GraphBatch`
        - **output:** [T, out] for nodes and links (embeddings), [B, out] for graphs
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        task: Task = "node",
        num_heads: int = 8,
        kernel_size: int | Sequence[int] = 5,
        tau: float | None = 1.0,
        smoothness: int = 1,
        unit_layers: int = 2,
        pool_layers: int = 1,
        final_layer: bool = False,
        residual: bool = False,
        recovery_scale: RecoveryScale = "print",
        dropout: float = 0.0,
        feature_dropout: float = 0.0,
        position_source: PositionSource = "explicit",
        position_channels: int | None = None,
        propagation: Propagation = "after",
        node_features: bool = True,
        structure_features: bool = True,
        propagated_features: int = 0,
        edge_channels: int = 1,
        rank_gradient: RankGradient | None = None,
        normalise_rank_gradient: NormaliseRankGradient = True,
        ties: Ties = "auto",
        self_loops: bool = True,
        truncate: int = 4,
    ) -> None:
        super().__init__()
        if not node_features and not structure_features:
            raise ValueError("Expected 'node_features' or 'structure_features' to be on (got neither)")
        if tau is not None and tau <= 0:
            raise ValueError(
                f"Expected 'tau' to be positive, or None for the standard permutation (got {tau})"
            )
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.task = task
        self.num_heads = num_heads
        self.tau = tau
        self.position_source = position_source
        self.propagated_features = propagated_features
        self.structure_features = structure_features
        self.rank_gradient = rank_gradient
        self.normalise_rank_gradient = normalise_rank_gradient
        self.ties = ties
        self.self_loops = self_loops
        self.truncate = truncate
        self.stack = StackSettings(
            channels=hidden_channels,
            kernel_sizes=(kernel_size,) if isinstance(kernel_size, int) else tuple(kernel_size),
            unit_layers=unit_layers,
            pool_layers=pool_layers,
            final_layer=final_layer,
            residual=residual,
            dropout=dropout,
            node_features=node_features,
            edge_channels=edge_channels if structure_features else 0,
            recovery_scale=recovery_scale,
        )
        read_channels = max(in_channels, 1)
        # Without node features the convolutions and skips read none, so there is nothing to map either.
        width = read_channels * (1 + propagated_features)
        self.input = nn.Linear(width, hidden_channels) if node_features else None
        self.norm = nn.LayerNorm(hidden_channels) if node_features else None
        self.feature_dropout = nn.Dropout(feature_dropout)
        self.positions: PositionRegression | None = None
        if position_source == "explicit":
            self.positions = PositionRegression(
                position_channels or read_channels, num_heads, hidden_channels, smoothness, propagation
            )
        elif position_source == "implicit":
            columns = 1 + truncate if position_channels is None else position_channels
            self.positions = PositionRegression(columns, num_heads, hidden_channels)
        self.down = CompressionStack(self.stack)
        self.up = RecoveryStack(self.stack) if self._recovers_nodes() else None
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(num_heads * hidden_channels, out_channels)
        self._calm_output()

    def _recovers_nodes(self) -> bool:
        return self.task != "graph"

    def reset_parameters(self) -> None:
        """Reinitialise all parameters."""
        for module in self.children():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()  # type: ignore[operator]
        self._calm_output()

    def _calm_output(self) -> None:
        """Start with logits near zero: sums over heads and levels would otherwise make confident mistakes."""
        if self.task == "link":
            return
        with torch.no_grad():
            self.out.weight.mul_(OUTPUT_GAIN)
            self.out.bias.zero_()

    def prepare(self, data: Any, **tensors: Any) -> GraphBatch:
        """Arrange and pad a graph once, to be passed to every forward call.

        Args:
            data: a PyG ``Data`` or ``Batch``, or x together with the tensors of :func:`cocn.graphs.prepare`.
                Where it has no ``edge_attr`` its ``edge_weight`` is read.

        Raises:
            ValueError: the model reads edge features and there are not ``edge_channels`` of them.
        """
        if isinstance(data, GraphBatch):
            return data
        if not (data is None or isinstance(data, Tensor)):
            names = (
                "edge_index",
                "edge_attr",
                "batch",
                "positions",
                "tie_rank",
                "tie_orbit",
                "num_nodes",
            )
            tensors = {name: getattr(data, name, None) for name in names} | tensors
            if tensors["edge_attr"] is None or not self.structure_features:
                tensors["edge_attr"] = getattr(data, "edge_weight", None)
            data = data.x
        self._check_edge_channels(tensors.get("edge_attr"))
        truncate = self.truncate if self.position_source == "implicit" else None
        return prepare(
            data,
            **tensors,
            ties=self.ties,
            self_loops=self.self_loops,
            truncate=truncate,
            find_orbits=self.task != "graph",
        )

    def _check_edge_channels(self, edge_attr: Tensor | None) -> None:
        if edge_attr is None or not self.structure_features:
            return
        channels = edge_attr.shape[1:].numel()
        if channels != self.stack.edge_channels:
            raise ValueError(
                f"Expected 'edge_attr' to have {self.stack.edge_channels} channels (got {channels})"
            )

    def forward(self, data: Any, edge_index: Tensor | None = None, **tensors: Any) -> Tensor:
        """Predict.

        Args:
            data: x, a ``Data``, a ``Batch`` or a prepared :class:`GraphBatch`.
            edge_index: [2, M] where data is x.
            tensors: ``edge_attr``, ``batch``, ``positions``, ``tie_rank`` as in :func:`cocn.graphs.prepare`.
        """
        if edge_index is not None:
            tensors["edge_index"] = edge_index
        graph = self.prepare(data, **tensors)
        return self.out(self.dropout(self.embed(graph)))

    def embed(self, graph: GraphBatch, heads: slice = ALL_HEADS) -> Tensor:
        """Representation before the last linear map: [T, H·C] for nodes and links, [B, H·C] for graphs.

        Args:
            graph: the graph.
            heads: heads to compute; they are independent of one another up to here.
        """
        ranks = self.rank_nodes(graph, heads)
        num_heads = ranks.rank_BHN.size(1)
        gates = gate(ranks.rank_grad_BHN, self.tau)
        lengths_G = _per_head(graph.padded_lengths, num_heads)
        mask = None if lengths_G is None else _mask(graph.max_length, lengths_G, gates.dtype)
        h_BNC = graph.pad(self.read_features(self.graph_features(graph)))
        sequence = self.permute(h_BNC, ranks, gates, lengths_G)
        levels = self.down(sequence, self.permute_edges(graph, ranks, gates), mask)
        if self.up is None:
            return max_over_sets(levels[-1], num_heads, self._last_mask(mask))
        recovered = circular_filter(self.up(levels, mask), self.tau, lengths_G, transpose=True)
        nodes = scatter_sequence(recovered, ranks.rank_BHN, graph.input_slots, gates).flatten(1)
        return graph.symmetrise(nodes)

    def graph_features(self, graph: GraphBatch) -> Tensor:
        """[T, D] input features, with means over their neighbourhoods alongside if configured."""
        x = self._features_or_ones(graph)
        if x.size(1) != max(self.in_channels, 1):
            raise ValueError(f"Expected 'x' to have {self.in_channels} features per node (got {x.size(1)})")
        return graph.over_hops(x, self.propagated_features) if self.propagated_features else x

    def read_features(self, x_TD: Tensor) -> Tensor:
        """The input module, [T, C]: linear, layer normalisation, ReLU; zeros without node features."""
        if self.input is None or self.norm is None:
            return self.out.weight.new_zeros(x_TD.size(0), self.hidden_channels)
        return torch.relu(self.norm(self.input(self.feature_dropout(x_TD))))

    def regress_positions(self, graph: GraphBatch) -> Tensor:
        """r_A of every node and head, [T, H], in arranged order."""
        if self.position_source == "explicit":
            return self._regress(self._features_or_ones(graph), graph.adjacency)
        if graph.positions is None:
            raise ValueError(f"Expected 'positions' with {self.position_source} positions (got none)")
        if self.position_source == "implicit":
            return self._regress(graph.positions, None)
        if graph.positions.size(1) != self.num_heads:
            raise ValueError(
                f"Expected 'positions' to have {self.num_heads} columns, one per head "
                f"(got {graph.positions.size(1)})"
            )
        return graph.positions

    def _regress(self, inputs: Tensor, adjacency: NormalisedAdjacency | None) -> Tensor:
        positions: Tensor = self.positions(inputs, adjacency)  # type: ignore[misc]
        return positions

    def _features_or_ones(self, graph: GraphBatch) -> Tensor:
        if graph.x is not None:
            return graph.x
        return self.out.weight.new_ones(graph.arrangement.numel(), 1)

    def rank_nodes(self, graph: GraphBatch, heads: slice = ALL_HEADS) -> Ranks:
        """Order the nodes of each graph by each head."""
        position_BHN = graph.pad(self.regress_positions(graph)[:, heads]).transpose(1, 2)
        gradient = self.rank_gradient or ("pairwise" if graph.max_length <= PAIRWISE_LIMIT else "taylor")
        normalise = normalises(self.normalise_rank_gradient, gradient)
        return rank(position_BHN.contiguous(), graph.padded_lengths, gradient, normalise)

    def permute(self, h_BNC: Tensor, ranks: Ranks, gates_BHN: Tensor, lengths_G: Tensor | None) -> Tensor:
        """P̂H for every head, [N, G, C]."""
        sequence = gather_sequence(h_BNC, ranks.order_BHN, ranks.rank_BHN, gates_BHN)
        return circular_filter(sequence, self.tau, lengths_G)

    def permute_edges(self, graph: GraphBatch, ranks: Ranks, gates_BHN: Tensor) -> Band | None:
        """P̂AP̂ᵀ for every head, near the diagonal."""
        if not self.structure_features:
            return None
        edges, width = graph.edges, self.stack.band_width
        return permuted_band(edges, ranks.rank_BHN, gates_BHN, self.tau, width, graph.padded_lengths)

    def _last_mask(self, mask_NG1: Tensor | None) -> Tensor | None:
        return None if mask_NG1 is None else mask_NG1[:: self.stack.kernel_size**self.stack.pool_layers]

    def decode(self, z_TC: Tensor, edge_label_index: Tensor) -> Tensor:
        """Score pairs of nodes from the output of a link model."""
        return score_links(z_TC, edge_label_index)

    def extra_repr(self) -> str:
        stack = self.stack
        return (
            f"{self.in_channels}, {self.hidden_channels}, {self.out_channels}, task={self.task!r}, "
            f"num_heads={self.num_heads}, kernel_size={list(stack.kernel_sizes)}, tau={self.tau}, "
            f"unit_layers={stack.unit_layers}, pool_layers={stack.pool_layers}, residual={stack.residual}, "
            f"position_source={self.position_source!r}"
        )


def _per_head(lengths_B: Tensor | None, num_heads: int) -> Tensor | None:
    return None if lengths_B is None else lengths_B.repeat_interleave(num_heads)


def _mask(length: int, lengths_G: Tensor, dtype: torch.dtype) -> Tensor:
    places = torch.arange(length, device=lengths_G.device)[:, None]
    return (places < lengths_G).to(dtype).unsqueeze(-1)


class VanillaCoCN(CoCN):
    """CoCN vanilla: explicit features, relaxed permutation, plain compressed convolutions."""


class ExpandedCoCN(CoCN):
    """CoCN expanded: residual and, with several kernel sizes, inception convolutions; implicit features."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        residual: bool = True,
        **settings: Any,
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, residual=residual, **settings)


class SparseCoCN(CoCN):
    """Sparse CoCN: the standard permutation with a gate for its gradient, O(n log n + m) per step."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        residual: bool = True,
        **settings: Any,
    ) -> None:
        settings = {"tau": None, "rank_gradient": "taylor"} | settings
        super().__init__(in_channels, hidden_channels, out_channels, residual=residual, **settings)
