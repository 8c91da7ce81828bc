"""Output modules."""

import pytest
import torch

from cocn.heads import max_over_sets, score_links


def test_max_over_sets_by_hand() -> None:
    """Two graphs with two heads each; padded sets do not count, even if all others are smaller."""
    h = torch.tensor([[1.0, -2, -3, 4], [5, -9, 0, 0]]).unsqueeze(-1)
    assert max_over_sets(h, 2).tolist() == [[5, -2], [0, 4]]
    mask = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]]).unsqueeze(-1)
    assert max_over_sets(h, 2, mask).tolist() == [[5, -2], [-3, 4]]


def test_links_by_hand() -> None:
    """The source half of one end with the target half of the other, so direction counts."""
    z = torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]])
    assert score_links(z, torch.tensor([[0, 1], [1, 0]])).tolist() == [1 * 7 + 2 * 8, 5 * 3 + 6 * 4]


def test_links_need_two_halves() -> None:
    with pytest.raises(ValueError, match=r"Expected an even number of output channels for links \(got 3\)"):
        score_links(torch.zeros(2, 3), torch.zeros(2, 1, dtype=torch.long))
