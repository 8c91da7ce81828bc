"""Input blocks: several kinds of node features, each with its own linear map and gate.

Blocks are side by side in one matrix: own features, averages over neighbours, structure, classes of
neighbours. They are standardised beforehand, so that no block drowns out the others.

Legend: R rows, D columns of all blocks, C channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

#: Scale of the initial weights. A column that is almost always zero is hardly trained: with large weights
#: it would only add noise to the nodes that have it.
GAIN = 0.1
#: Blocks wider than this are treated as bags of words: their rows have few entries, of size 1.
WIDE = 512
WIDE_DEVIATION = 0.005


class InputBlocks(nn.Module):
    r"""Sum of gated linear maps, one per block.

    .. math:: \mathbf{h} = \sum_b g_b\,\mathbf{W}_b\,\mathbf{x}_b + \mathbf{c}, \qquad g_b = 2\,\sigma(a_b)

    Gates start at 1. After training they show how much each block counts: see :meth:`gates`.

    Args:
        widths: columns of each block, by name, in the order in which they stand side by side.
        out_channels: channels of the sum.

    Shapes:
        - **input:** [R, D]
        - **output:** [R, C]
    """

    def __init__(self, widths: Mapping[str, int], out_channels: int) -> None:
        super().__init__()
        if not widths or min(widths.values()) < 1:
            raise ValueError(f"Expected 'widths' to name blocks with columns (got {dict(widths)})")
        self.widths = dict(widths)
        self.out_channels = out_channels
        self.weight = nn.Parameter(torch.empty(sum(widths.values()), out_channels))
        self.gate = nn.Parameter(torch.zeros(len(widths)))
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gate)
        nn.init.zeros_(self.bias)
        with torch.no_grad():
            for rows in self.weight.split(list(self.widths.values())):
                width = rows.size(0)
                rows.normal_(std=WIDE_DEVIATION if width > WIDE else GAIN / math.sqrt(width))

    @property
    def num_columns(self) -> int:
        return self.weight.size(0)

    def forward(self, x_RD: Tensor) -> Tensor:
        if x_RD.size(1) != self.num_columns:
            raise ValueError(f"Expected {self.num_columns} columns of blocks (got {x_RD.size(1)})")
        widths = torch.tensor(list(self.widths.values()), device=x_RD.device)
        gates = (2 * torch.sigmoid(self.gate)).repeat_interleave(widths, output_size=self.num_columns)
        return torch.addmm(self.bias, x_RD.to(self.weight.dtype), self.weight * gates.unsqueeze(1))

    def gates(self) -> dict[str, float]:
        """How much each block counts: its gate times the size of its weights, as a share of all blocks."""
        with torch.no_grad():
            gates = (2 * torch.sigmoid(self.gate)).tolist()
            sizes = [float(rows.norm()) for rows in self.weight.split(list(self.widths.values()))]
        products = [gate * size for gate, size in zip(gates, sizes, strict=True)]
        total = sum(products) or 1.0
        return {name: product / total for name, product in zip(self.widths, products, strict=True)}

    def extra_repr(self) -> str:
        return f"{self.widths}, {self.out_channels}"
