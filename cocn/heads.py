"""Output modules: from node sets to predictions for nodes, graphs or links.

Legend: N places, G sequences, B graphs, H heads, C channels, T nodes, L pairs.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Task = Literal["node", "graph", "link"]


def max_over_sets(h_NGC: Tensor, num_heads: int, mask_NG1: Tensor | None = None) -> Tensor:
    """Max over the real node sets of each sequence, heads side by side. Returns [G/H, H·C]."""
    if mask_NG1 is not None:
        h_NGC = h_NGC.masked_fill(mask_NG1 == 0, -torch.inf)
    return h_NGC.amax(0).view(-1, num_heads * h_NGC.size(-1))


def score_links(z_TC: Tensor, pairs_2L: Tensor) -> Tensor:
    """Score directed pairs: source half of the first end · target half of the second. Returns [L]."""
    if z_TC.size(1) % 2:
        raise ValueError(f"Expected an even number of output channels for links (got {z_TC.size(1)})")
    as_source, as_target = z_TC.chunk(2, dim=1)
    return (as_source[pairs_2L[0]] * as_target[pairs_2L[1]]).sum(1)
