"""Windows of a circular sequence, and the batches that hold them."""

import pytest
import torch

from cocn import SegmentBatch, prepare
from cocn.edges import EdgeList
from cocn.segments import (
    check_segment_length,
    num_words,
    pack_bits,
    unpack_bits,
    window_adjacency,
    window_index,
)
from tests.cocn.cases import random_graph


def batch(**changes: torch.Tensor | None) -> SegmentBatch:
    fields: dict[str, torch.Tensor | None] = {
        "x": torch.zeros(5, 2),
        "index": torch.zeros(3, 2, 4, dtype=torch.long),
        "words": torch.zeros(3, 2, 1, dtype=torch.long),
        "node": torch.arange(3),
        "y": torch.zeros(3, dtype=torch.long),
        "positions": torch.zeros(5, 1),
    }
    return SegmentBatch(**(fields | changes))  # type: ignore[arg-type]


def test_windows_by_hand() -> None:
    """Sequence 3 0 2 1: the window of node 1 starts at the last place and continues at the first."""
    order = torch.tensor([[3, 0, 2, 1]])
    rank = torch.tensor([[1], [3], [2], [0]])
    index = window_index(order, rank, 3)
    assert index[:, 0].tolist() == [[0, 2, 1], [1, 3, 0], [2, 1, 3], [3, 0, 2]]


def test_adjacency_by_hand() -> None:
    """Edges 0→2 and 1→3 (weight 5): the window of 1 holds 1→3 and, two places on, no 0→2."""
    rank = torch.tensor([[1], [3], [2], [0]])
    source, target = torch.tensor([0, 1]), torch.tensor([2, 3])
    edges = EdgeList(torch.zeros(2, dtype=torch.long), source, target, torch.tensor([[1.0], [5.0]]), False)
    windows = window_adjacency(edges, rank, 3, torch.float32)[:, 0, ..., 0]
    assert windows[1].tolist() == [[0, 5, 0], [0, 0, 0], [0, 0, 0]]
    assert windows[2].tolist() == [[0, 0, 0], [0, 0, 5], [0, 0, 0]]
    assert windows[3].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("segment_length", [1, 4, 9, 10])
def test_adjacency_equals_a_look_up(segment_length: int, directed: bool) -> None:
    graph = random_graph(2, 10, 20, channels=2, directed=directed)
    prepared = prepare(graph.x, **graph.tensors())
    dense = torch.zeros(10, 10, 2, dtype=torch.float64)
    assert prepared.edges.values is not None
    dense[prepared.edges.source, prepared.edges.target] = prepared.edges.values
    order = torch.stack([torch.randperm(10) for _ in range(3)])
    rank = order.argsort(1).t()
    index = window_index(order, rank, segment_length)
    found = window_adjacency(prepared.edges, rank, segment_length, torch.float64)
    assert torch.equal(found, dense[index.unsqueeze(-1), index.unsqueeze(-2)])


@pytest.mark.parametrize("segment_length", [1, 3, 8, 9, 16])
def test_bits_go_there_and_back(segment_length: int) -> None:
    adjacency = torch.rand(3, 2, segment_length, segment_length) < 0.5
    words = pack_bits(adjacency)
    assert words.shape == (3, 2, num_words(segment_length))
    assert torch.equal(unpack_bits(words, segment_length).bool(), adjacency)


def test_bit_order_by_hand() -> None:
    """Bit p·S+q is the edge from place p to place q, the sign bit included."""
    adjacency = torch.zeros(1, 1, 8, 8)
    adjacency[0, 0, 0, 1] = adjacency[0, 0, 2, 3] = 1
    assert pack_bits(adjacency).item() == (1 << 1) + (1 << 19)
    adjacency[0, 0, 7, 7] = 1
    assert pack_bits(adjacency).item() < 0


def test_edge_features_take_the_place_of_bits() -> None:
    values = torch.rand(3, 2, 4, 4, 2)
    found = batch(values=values, words=torch.empty(0)).adjacency(torch.float64)
    assert found.dtype == torch.float64
    assert torch.equal(found.float(), values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": torch.zeros(2, 2, 4)}, r"Expected 'index' to be \[3, heads, length\] \(got \[2, 2, 4\]\)"),
        ({"words": torch.zeros(3, 2, 2)}, r"Expected 'words' to be \[3, 2, 1\] \(got \[3, 2, 2\]\)"),
        ({"y": torch.zeros(4)}, r"Expected 'y' to have 3 rows \(got 4\)"),
        ({"positions": torch.zeros(4, 1)}, r"Expected 'positions' to have 5 rows \(got 4\)"),
    ],
)
def test_wrong_shapes_are_refused(changes: dict[str, torch.Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch(**changes)


def test_every_tensor_moves() -> None:
    moved = batch(y=None).to("meta", non_blocking=True)
    assert all(getattr(moved, name).is_meta for name in ("x", "index", "words", "node", "positions"))
    assert moved.y is None
    assert (moved.num_records, moved.segment_length) == (3, 4)


def test_segments_fit_into_the_graph() -> None:
    graph = random_graph(1, 5, 4)
    prepared = prepare(graph.x, **graph.tensors())
    check_segment_length(5, prepared)
    with pytest.raises(
        ValueError, match=r"'segment_length' to be at most the 5 nodes of the graph \(got 8\)"
    ):
        check_segment_length(8, prepared)
