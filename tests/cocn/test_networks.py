"""The stacks: steps, widths of the band, masks."""

import torch

from cocn.diagonal import Band
from cocn.networks import CompressionStack, RecoveryStack, StackSettings, level_masks

SETTINGS = StackSettings(
    channels=4,
    kernel_sizes=(3, 2),
    unit_layers=2,
    pool_layers=2,
    final_layer=True,
    residual=True,
    dropout=0.0,
    node_features=True,
    edge_channels=1,
)


def test_steps_and_band_widths_by_hand() -> None:
    """From the last layer back: 2 for a unit step, w·3 + 2 below a pooling step."""
    assert SETTINGS.steps == (1, 1, 3, 3, 1)
    assert SETTINGS.band_widths == (30, 28, 26, 8, 2, 0)
    assert SETTINGS.band_width == 30


def test_the_band_is_as_wide_as_what_is_read() -> None:
    """One off-diagonal less changes the output, one more does not."""
    stack = CompressionStack(SETTINGS).double()
    # The further out, the larger, so that max pooling passes on what lies outermost.
    h, cells = torch.randn(40, 1, 4).double(), torch.rand(40, 1, 1, 35).double() + torch.arange(35)
    last = [stack(h, Band(cells[..., :width], 1))[-1] for width in (29, 30, 31, 35)]
    assert torch.equal(last[1], last[2])
    assert torch.equal(last[1], last[3])
    assert not torch.equal(last[0], last[1])


def test_levels_shrink_and_recover() -> None:
    stack, recovery = CompressionStack(SETTINGS), RecoveryStack(SETTINGS)
    levels = stack(torch.randn(20, 2, 4), None)
    assert [level.size(0) for level in levels] == [20, 20, 20, 7, 3, 3]
    assert recovery(levels).shape == (20, 2, 4)


def test_masks_by_hand() -> None:
    mask = (torch.arange(7)[:, None] < torch.tensor([7, 4])).float().unsqueeze(-1)
    levels = level_masks(mask, (1, 3))
    assert [level[:, 1, 0].tolist() for level in levels if level is not None] == [
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 0],
    ]
    assert level_masks(None, (1, 3)) == [None, None, None]
