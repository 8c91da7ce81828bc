"""Mixing blocks: taps of gated windows by hand and against a dense oracle, and what a block starts as."""

import torch

from cocn.aggregation import mean_aggregator
from cocn.mixing import MixingBlock, Surroundings, WindowTaps


def path_edges(num_nodes: int) -> torch.Tensor:
    forward = torch.stack([torch.arange(num_nodes - 1), torch.arange(1, num_nodes)])
    return torch.cat([forward, forward.flip(0)], dim=1)


def test_taps_of_a_path_read_the_neighbours_at_their_distance() -> None:
    # The order is 0, 2, 1, 3: along it the path 0-1-2-3 has offsets +2, -1, +2.
    rank = torch.tensor([[0], [2], [1], [3]])
    taps = WindowTaps(path_edges(4), rank, window=3)
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    read = taps(x).view(4, 4)  # taps -2, -1, +1, +2
    expected = torch.tensor(
        [[0.0, 0.0, 0.0, 10.0], [1.0, 100.0, 0.0, 0.0], [0.0, 0.0, 10.0, 1000.0], [100.0, 0.0, 0.0, 0.0]]
    )
    torch.testing.assert_close(read, expected)


def test_taps_equal_the_dense_gated_windows_in_value_and_gradient() -> None:
    torch.manual_seed(0)
    size, heads, window = 12, 3, 4
    edges = (torch.rand(size, size) < 0.4).triu(1)
    edges = (edges | edges.t()).nonzero().t()
    rank = torch.stack([torch.randperm(size) for _ in range(heads)], dim=1)
    adjacency = torch.zeros(size, size, dtype=torch.double)
    adjacency[edges[0], edges[1]] = 1
    x = torch.randn(size, 2, dtype=torch.double, requires_grad=True)
    parts = []
    for distance in (-3, -2, -1, 1, 2, 3):
        at = torch.stack([rank[None, :, h] - rank[:, None, h] == distance for h in range(heads)])
        gated = (at * adjacency).sum(0)
        parts.append(gated / gated.sum(1, keepdim=True).clamp(min=1) @ x)
    oracle = torch.cat(parts, dim=1)
    read = WindowTaps(edges, rank, window)(x)
    torch.testing.assert_close(read, oracle)
    weight = torch.randn_like(oracle)
    mine, theirs = (
        torch.autograd.grad((out * weight).sum(), x, retain_graph=True)[0] for out in (read, oracle)
    )
    torch.testing.assert_close(mine, theirs)


def test_a_block_starts_without_its_windows() -> None:
    torch.manual_seed(0)
    edges, rank = path_edges(6), torch.arange(6)[:, None]
    block = MixingBlock(4, 1, 4, dropout=0.0).eval()
    x = torch.randn(6, 4)
    means = (mean_aggregator(edges, 6),)
    with_windows = block(x, Surroundings(means, WindowTaps(edges, rank, 3)))
    torch.testing.assert_close(with_windows, block(x, Surroundings(means)))
    assert block.windows is not None
    with torch.no_grad():
        block.windows.weight.normal_()
    assert not torch.allclose(block(x, Surroundings(means, WindowTaps(edges, rank, 3))), with_windows)
