"""The modern recipe: input blocks, an ego path, mixing blocks, and windows that start at zero.

The paper's network orders nodes and reads windows of the order; nothing in it preserves a node's own
features, and heads never exchange information. Here every model has an ego path from the input blocks
of a node to its logits, so that it never does worse than that path alone; windows and neighbours are
added to it.

Legend: N nodes, R records, U distinct nodes of a batch, D columns of all blocks, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from cocn.graphs import GraphBatch
from cocn.inputs import InputBlocks
from cocn.mixing import MixingBlock, Surroundings
from cocn.models import CoCN
from cocn.segmented import SegmentCoCN
from cocn.segments import SegmentBatch


class EgoPath(nn.Module):
    r"""What a node is by itself: input blocks, then residual layers.

    .. math:: \mathbf{h} = \texttt{ReLU}(\texttt{Inputs}(\mathbf{x})), \qquad
              \mathbf{h} \leftarrow \mathbf{h} + \texttt{ReLU}(\texttt{LayerNorm}(\mathbf{W}\mathbf{h}))

    There is no norm right after the input blocks: it would scale small weights of rare columns back up.

    Args:
        widths: columns of each block, by name.
        channels: C.
        layers: residual layers.
        dropout: dropout rate.
        input_dropout: dropout rate of the blocks' columns.
    """

    def __init__(
        self,
        widths: Mapping[str, int],
        channels: int,
        layers: int,
        dropout: float,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_dropout = nn.Dropout(input_dropout)
        self.inputs = InputBlocks(widths, channels)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(channels, channels), nn.LayerNorm(channels), nn.ReLU(), nn.Dropout(dropout)
            )
            for _ in range(layers)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_RD: Tensor) -> Tensor:
        h = self.dropout(torch.relu(self.inputs(self.input_dropout(x_RD))))
        for layer in self.layers:
            h = h + layer(h)
        return h


@dataclass(frozen=True, eq=False)
class BlockGraph:
    """A graph as mixing blocks read it.

    Attributes:
        x: [N, D] blocks of every node, side by side.
        surroundings: averages over neighbours, and gated windows.
        ordered: the graph as the paper's network reads it, where that is part of the model.
    """

    x: Tensor
    surroundings: Surroundings
    ordered: GraphBatch | None = None

    def to(self, device: torch.device | str) -> BlockGraph:
        ordered = None if self.ordered is None else self.ordered.to(device)
        return BlockGraph(self.x.to(device), self.surroundings.to(device), ordered)


class MixingCoCN(nn.Module):
    """The full-graph model of the modern recipe: an ego path beside mixing blocks with gated windows.

    Args:
        widths: columns of each block, by name, in the order in which they stand in x.
        hidden_channels: C.
        out_channels: classes.
        layers: mixing blocks.
        ego_layers: residual layers of the ego path.
        num_means: kinds of neighbours: 1, or 2 for a directed graph.
        num_taps: taps of the windows, 0 for none.
        dropout: dropout rate.
        input_dropout: dropout rate of the blocks' columns.
        private: blocks that only the node itself may read, such as the classes of neighbours: if they were
            passed on, a node's own class would come back to it.
        windows: the paper's network with relaxed permutations, with `hidden_channels` outputs, whose last map
            starts at zero; None for none.

    Shapes:
        - **input:** a :class:`BlockGraph`
        - **output:** [N, out]
    """

    def __init__(
        self,
        widths: Mapping[str, int],
        hidden_channels: int,
        out_channels: int,
        *,
        layers: int = 4,
        ego_layers: int = 1,
        num_means: int = 1,
        num_taps: int = 0,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        private: Sequence[str] = (),
        windows: CoCN | None = None,
    ) -> None:
        super().__init__()
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.ego = EgoPath(widths, hidden_channels, ego_layers, dropout, input_dropout)
        shared = {name: width for name, width in widths.items() if name not in private}
        self._shared_columns = _columns_of(widths, shared)
        self.inputs = InputBlocks(shared, hidden_channels) if layers else None
        self.blocks = nn.ModuleList(
            MixingBlock(hidden_channels, num_means, num_taps, dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(hidden_channels)
        self.dropout = nn.Dropout(dropout)
        self.windows = _start_at_zero(windows)
        self.out = nn.Linear(hidden_channels, out_channels)

    def forward(self, graph: BlockGraph) -> Tensor:
        return self.out(self.embed(graph))

    def embed(self, graph: BlockGraph) -> Tensor:
        """[N, C] before the last linear map."""
        h = self.ego(graph.x)
        if self.inputs is not None:
            shared = graph.x
            if self._shared_columns is not None:
                shared = torch.cat([graph.x[:, columns] for columns in self._shared_columns], dim=1)
            mixed = self.dropout(torch.relu(self.inputs(self.ego.input_dropout(shared))))
            for block in self.blocks:
                mixed = block(mixed, graph.surroundings)
            h = h + self.norm(mixed)
        if self.windows is not None:
            if graph.ordered is None:
                raise ValueError("Expected a graph with 'ordered' for a model with windows (got one without)")
            h = h + self.windows(graph.ordered)
        return h

    @property
    def positions(self) -> nn.Module | None:
        """Always None: orders are not learned."""
        return None

    def gates(self) -> dict[str, float]:
        """How much each input block counts, over both paths."""
        return _mean_gates([self.ego.inputs, *([] if self.inputs is None else [self.inputs])])


class StreamingCoCN(nn.Module):
    """The streaming model of the modern recipe: an ego path beside the paper's network on windows.

    The windows' last map starts at zero, so that the model starts out as its ego path.

    Args:
        widths: columns of each block of a record, by name.
        windows: the paper's network on segments, with `hidden_channels` outputs; None for the ego path alone.
        hidden_channels: C.
        out_channels: classes.
        ego_layers: residual layers of the ego path.
        dropout: dropout rate.
        input_dropout: dropout rate of the blocks' columns.

    Shapes:
        - **input:** a :class:`cocn.SegmentBatch` with ``blocks``
        - **output:** [R, out]
    """

    def __init__(
        self,
        widths: Mapping[str, int],
        windows: SegmentCoCN | None,
        hidden_channels: int,
        out_channels: int,
        *,
        ego_layers: int = 1,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.ego = EgoPath(widths, hidden_channels, ego_layers, dropout, input_dropout)
        self.windows = cast("SegmentCoCN | None", _start_at_zero(windows))
        self.out = nn.Linear(hidden_channels, out_channels)

    @property
    def positions(self) -> nn.Module | None:
        """The regression of positions, where they are learned."""
        return None if self.windows is None else self.windows.positions

    def forward(self, batch: SegmentBatch) -> Tensor:
        return self.out(self.embed_segments(batch))

    def embed_segments(self, batch: SegmentBatch) -> Tensor:
        """[R, C] before the last linear map."""
        if batch.blocks is None:
            raise ValueError("Expected a batch with 'blocks' of its records (got one without)")
        h = self.ego(batch.blocks)
        if self.windows is not None:
            h = h + self.windows(batch)
        return h

    def gates(self) -> dict[str, float]:
        """How much each input block counts."""
        return self.ego.inputs.gates()


def _start_at_zero(windows: CoCN | None) -> CoCN | None:
    """The network with a last map of zeros, so that it adds nothing at first."""
    if windows is not None:
        nn.init.zeros_(windows.out.weight)
        nn.init.zeros_(windows.out.bias)
    return windows


def _columns_of(widths: Mapping[str, int], chosen: Mapping[str, int]) -> list[slice] | None:
    """Columns of the chosen blocks among all; None if all blocks are chosen."""
    if len(chosen) == len(widths):
        return None
    slices, start = [], 0
    for name, width in widths.items():
        if name in chosen:
            slices.append(slice(start, start + width))
        start += width
    return slices


def _mean_gates(inputs: Sequence[InputBlocks]) -> dict[str, float]:
    totals: dict[str, Any] = {}
    for each in inputs:
        for name, share in each.gates().items():
            totals[name] = totals.get(name, 0.0) + share / len(inputs)
    return totals
