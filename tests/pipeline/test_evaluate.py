"""Metrics by hand, unlabelled nodes left out."""

import numpy as np
import pytest
import torch

from pipeline.evaluate import default_metric, evaluate, score


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
    assert with_unknown.num_nodes == 2
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
