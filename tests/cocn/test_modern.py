"""Models of the modern recipe start as their ego path, keep private blocks private, and ignore numbering."""

import torch

from cocn import SegmentBatch, SegmentCoCN
from cocn.aggregation import mean_aggregator
from cocn.mixing import Surroundings
from cocn.modern import BlockGraph, MixingCoCN, StreamingCoCN

WIDTHS = {"own": 3, "labels-0": 2}


def random_graph(size: int = 10) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    edges = (torch.rand(size, size) < 0.3).triu(1)
    return torch.randn(size, 5), (edges | edges.t()).nonzero().t()


def block_graph(x: torch.Tensor, edges: torch.Tensor) -> BlockGraph:
    return BlockGraph(x, Surroundings((mean_aggregator(edges, x.size(0)),)))


def test_relabelled_nodes_get_the_same_answers() -> None:
    x, edges = random_graph()
    model = MixingCoCN(WIDTHS, 8, 3, layers=2, private=["labels-0"]).eval()
    order = torch.randperm(10)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(10))
    renamed = model(block_graph(x[order], place[edges]))
    torch.testing.assert_close(renamed, model(block_graph(x, edges))[order])


def test_private_blocks_reach_no_other_node() -> None:
    x, edges = random_graph()
    model = MixingCoCN(WIDTHS, 8, 3, layers=2, private=["labels-0"]).eval()
    other = x.clone()
    other[4, 3:] += 1.0
    before, after = model(block_graph(x, edges)), model(block_graph(other, edges))
    changed = (before != after).any(1).nonzero().flatten().tolist()
    assert changed == [4]


def test_without_mixing_blocks_the_model_is_its_ego_path() -> None:
    x, edges = random_graph()
    model = MixingCoCN(WIDTHS, 8, 3, layers=0).eval()
    torch.testing.assert_close(model(block_graph(x, edges)), model.out(model.ego(x)))


def segment_batch(records: int = 4, heads: int = 2, length: int = 4) -> SegmentBatch:
    torch.manual_seed(2)
    return SegmentBatch(
        x=torch.randn(9, 3),
        index=torch.randint(9, (records, heads, length)),
        words=torch.zeros(records, heads, 1, dtype=torch.long),
        node=torch.arange(records),
        blocks=torch.randn(records, 5),
    )


def test_a_streaming_model_starts_as_its_ego_path() -> None:
    windows = SegmentCoCN(3, 8, 6, segment_length=4, num_heads=2, kernel_size=2, position_source="fixed")
    model = StreamingCoCN(WIDTHS, windows, 6, 3).eval()
    batch = segment_batch()
    assert batch.blocks is not None
    torch.testing.assert_close(model(batch), model.out(model.ego(batch.blocks)))
    model(batch).sum().backward()
    assert windows.out.weight.grad is not None
    assert windows.out.weight.grad.abs().sum() > 0
