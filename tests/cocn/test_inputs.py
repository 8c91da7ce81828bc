"""Input blocks: the sum of gated maps by hand, and what the gates show."""

import pytest
import torch

from cocn.inputs import WIDE, InputBlocks


def test_the_sum_of_gated_maps_by_hand() -> None:
    blocks = InputBlocks({"own": 2, "labels": 3}, 4).double()
    with torch.no_grad():
        blocks.gate.copy_(torch.tensor([0.3, -0.7]))
        blocks.bias.uniform_()
    x = torch.randn(5, 5, dtype=torch.double)
    gates = 2 / (1 + torch.exp(-blocks.gate))
    own, labels = x.split([2, 3], dim=1)
    by_hand = gates[0] * own @ blocks.weight[:2] + gates[1] * labels @ blocks.weight[2:] + blocks.bias
    torch.testing.assert_close(blocks(x), by_hand)


def test_gates_are_shares_that_follow_the_weights() -> None:
    blocks = InputBlocks({"own": 2, "labels": 3}, 4)
    with torch.no_grad():
        blocks.weight.zero_()
        blocks.weight[2:] = 1.0
    assert blocks.gates() == {"own": 0.0, "labels": 1.0}


def test_wide_blocks_start_near_zero() -> None:
    blocks = InputBlocks({"words": 4 * WIDE, "degrees": 4}, 64)
    words, degrees = blocks.weight.split([4 * WIDE, 4])
    assert words.std() < 0.01 < degrees.std()


def test_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="Expected 5 columns of blocks"):
        InputBlocks({"own": 2, "labels": 3}, 4)(torch.zeros(1, 6))
    with pytest.raises(ValueError, match="Expected 'widths' to name blocks"):
        InputBlocks({}, 4)
