"""Metrics by hand, unlabelled nodes left out."""

import numpy as np
import pytest
import torch

from pipeline.models.metrics import default_metric, evaluate, link_ranks, score


def test_two_classes_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.35, 0.65], [0.2, 0.8]])
    scores = score(probabilities, np.array([0, 1, 0, 1]))
    assert scores["accuracy"] == 0.5
    assert scores["roc_auc"] == 0.75  # of four pairs of a mine and a free cell, three are in order
    assert scores["macro_f1"] == pytest.approx(0.5)
    assert scores["average_precision"] == pytest.approx((1 / 1 + 2 / 3) / 2)


def test_unlabelled_nodes_do_not_count() -> None:
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [9.0, 0.0, 0.0]])
    with_unknown = evaluate(logits, torch.tensor([0, 1, -1]))
    assert with_unknown == evaluate(logits[:2], torch.tensor([0, 1]))
    assert with_unknown.num_rows == 2
    assert with_unknown.metrics["accuracy"] == 1.0
    assert "roc_auc" not in with_unknown.metrics


def test_loss_is_the_mean_cross_entropy() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    expected = (np.log(1 + np.exp(-1.0)) + np.log(2.0)) / 2
    assert evaluate(logits, torch.tensor([0, 1])).loss == pytest.approx(expected)


def test_a_part_without_labels_has_no_scores() -> None:
    assert evaluate(torch.zeros(2, 2), torch.tensor([-1, -1])).metrics == {}


def test_the_metric_follows_from_the_classes() -> None:
    assert default_metric(2) == "roc_auc"
    assert default_metric(3) == "accuracy"


def test_links_among_shared_negatives_by_hand() -> None:
    positive, negative = torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0.8, 0.6, 0.5, 0.2])
    # Above 0.9 is nothing; above 0.5 are two, and one is equal; above 0.1 are all four.
    assert link_ranks(positive, negative).tolist() == [1.0, 3.5, 5.0]


def test_links_with_negatives_of_their_own_by_hand() -> None:
    positive = torch.tensor([0.9, 0.5])
    negative = torch.tensor([[0.95, 0.1, 0.2], [0.4, 0.3, 0.2]])
    assert link_ranks(positive, negative).tolist() == [2.0, 1.0]


def test_shared_negatives_equal_the_same_ones_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    positive = torch.randint(0, 9, (40,), generator=generator).double()
    negative = torch.randint(0, 9, (70,), generator=generator).double()
    assert torch.equal(link_ranks(positive, negative), link_ranks(positive, negative.expand(40, 70)))


def test_a_constant_score_ranks_in_the_middle() -> None:
    assert link_ranks(torch.zeros(5), torch.zeros(99)).tolist() == [50.5] * 5
