"""Metrics over all rows of a part, for any number of ranks and batch size."""

import math
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pipeline.config.settings import MetricName
from pipeline.models.target_metrics import score_labels, score_values
from pipeline.store.arrays import Answer, Task

#: k of Hits@k for links.
_HITS = (1, 3, 10, 50, 100)


@dataclass(frozen=True)
class Predictions:
    """Predictions for the rows of a part (nodes, graphs or pairs), over all ranks, in the order of the rows.

    Shapes:
        row: [R] number of the node, graph or pair.
        logits: [R, C] of the classes, or [R] scores of pairs.
        label: [R] classes, or [R, k] labels or values, NaN where unknown.
        rank: [R] rank of each true link among its competitors, from 1; 0 for false ones. None except for
            links.
        group: [R] graph of each pair, within which ranks are averaged first.
    """

    row: Tensor
    logits: Tensor
    label: Tensor
    rank: Tensor | None = None
    group: Tensor | None = None
    answer: Answer = field(default="classes", kw_only=True)


@dataclass(frozen=True)
class Evaluation:
    """Scores of a part of the nodes, graphs or pairs.

    Attributes:
        num_rows: labelled rows that were scored.
        loss: mean cross-entropy.
        metrics: every metric that the number of classes allows; empty if the loss is not finite.
    """

    num_rows: int
    loss: float
    metrics: dict[str, float]


def default_metric(num_classes: int, task: Task = "node", answer: Answer = "classes") -> MetricName:
    """For nodes ROC AUC of two classes and of labels, accuracy of more classes, R² of values.

    Accuracy for graphs, MRR for links.
    """
    if task == "node" and answer != "classes":
        return "roc_auc" if answer == "labels" else "r2"
    if task == "link":
        return "mrr"
    return "roc_auc" if num_classes == 2 and task == "node" else "accuracy"


def evaluate_predictions(predictions: Predictions) -> Evaluation:
    """Score what a feed predicted."""
    if predictions.answer != "classes":
        return _evaluate_targets(predictions)
    if predictions.rank is None or predictions.group is None:
        return evaluate(predictions.logits, predictions.label)
    return evaluate_links(predictions.logits, predictions.label, predictions.rank, predictions.group)


def _evaluate_targets(predictions: Predictions) -> Evaluation:
    """Score labels or values; the loss of values is their squared error."""
    outputs, targets = predictions.logits.double().cpu(), predictions.label.double().cpu()
    known = targets.isfinite()
    rows = int(known.any(1).sum())
    are_labels = predictions.answer == "labels"
    measure = F.binary_cross_entropy_with_logits if are_labels else F.mse_loss
    loss = float(measure(outputs[known], targets[known]))
    if not rows or not math.isfinite(loss):
        return Evaluation(rows, loss, {})
    values = (outputs.numpy(), targets.numpy())
    return Evaluation(rows, loss, score_labels(*values) if are_labels else score_values(*values))


def evaluate_links(scores_R: Tensor, labels_R: Tensor, ranks_R: Tensor, groups_R: Tensor) -> Evaluation:
    """Score pairs: ROC AUC and average precision over all, MRR and Hits@k within each graph, averaged.

    Graphs without a true link have no ranks and do not count.

    Shapes:
        scores_R: [R]
        labels_R: [R], 1 for true links
        ranks_R: [R], of true links
        groups_R: [R], graph of each pair
    """
    scores, labels = scores_R.double().cpu(), labels_R.cpu()
    loss = float(F.binary_cross_entropy_with_logits(scores, labels.double()))
    if not math.isfinite(loss):
        return Evaluation(labels.numel(), loss, {})
    # Computed from the scores themselves: as probabilities, large ones would all be 1.
    metrics = _score_order(scores.numpy(), labels.numpy())
    true = labels == 1
    if bool(true.any()):
        ranks, groups = ranks_R.cpu()[true].double(), groups_R.cpu()[true]
        metrics["mrr"] = _mean_of_means(1 / ranks, groups)
        metrics |= {f"hits_{k}": _mean_of_means((ranks <= k).double(), groups) for k in _HITS}
    return Evaluation(labels.numel(), loss, metrics)


def _mean_of_means(values: Tensor, groups: Tensor) -> float:
    """The mean over groups of the mean within each."""
    number = torch.unique(groups, return_inverse=True)[1]
    sums = values.new_zeros(int(number.max()) + 1).index_add_(0, number, values)
    return float((sums / torch.bincount(number)).mean())


def evaluate(logits_RC: Tensor, labels_R: Tensor) -> Evaluation:
    """Score predictions; nodes without a label do not count.

    Shapes:
        logits_RC: [R, C]
        labels_R: [R], −1 where unknown
    """
    known = labels_R >= 0
    logits, labels = logits_RC[known].double().cpu(), labels_R[known].cpu()
    loss = float(F.cross_entropy(logits, labels)) if labels.numel() else float("nan")
    scores = score(logits.softmax(1).numpy(), labels.numpy()) if math.isfinite(loss) else {}
    return Evaluation(int(labels.numel()), loss, scores)


def score(probabilities_RC: NDArray[np.float64], labels_R: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, macro F1 and, for two classes that both occur, ROC AUC and average precision."""
    from sklearn import metrics

    if not labels_R.size:
        return {}
    predicted = probabilities_RC.argmax(1)
    scores = {
        "accuracy": float((predicted == labels_R).mean()),
        "macro_f1": float(metrics.f1_score(labels_R, predicted, average="macro", zero_division=0)),
    }
    if probabilities_RC.shape[1] == 2:
        scores |= _score_order(probabilities_RC[:, 1], labels_R)
    return scores


def _score_order(scores_R: NDArray[np.float64], labels_R: NDArray[np.int64]) -> dict[str, float]:
    """ROC AUC and average precision with two classes; empty unless both occur."""
    from sklearn import metrics

    if not 0 < labels_R.sum() < labels_R.size:
        return {}
    return {
        "roc_auc": float(metrics.roc_auc_score(labels_R, scores_R)),
        "average_precision": float(metrics.average_precision_score(labels_R, scores_R)),
    }


def link_ranks(positive_P: Tensor, negative: Tensor) -> Tensor:
    """Rank of each true link among others, from 1. Returns [P].

    A link that scores the same as others takes the middle of their ranks, so that a constant score gains
    nothing.

    Shapes:
        positive_P: [P] scores of true links
        negative: [Q] scores of false links that all true ones are ranked against, or [P, Q] for their own
    """
    if negative.dim() == 1:
        # Sorting once is linear in memory; comparing all pairs would not be.
        ordered = negative.sort().values
        below = torch.searchsorted(ordered, positive_P, right=False)
        not_above = torch.searchsorted(ordered, positive_P, right=True)
        above, equal = negative.numel() - not_above, not_above - below
    else:
        above = (negative > positive_P[:, None]).sum(1)
        equal = (negative == positive_P[:, None]).sum(1)
    return 1 + above + equal.double() / 2


def gather_from_ranks(rows: Tensor) -> Tensor:
    """The rows of all ranks, those of rank 0 first; ranks may have different numbers of rows."""
    if not (dist.is_available() and dist.is_initialized()):
        return rows
    counts = [torch.zeros(1, dtype=torch.long, device=rows.device) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([rows.size(0)], device=rows.device))
    longest = max(int(count) for count in counts)
    padded = rows.new_zeros(longest, *rows.shape[1:])
    padded[: rows.size(0)] = rows
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])


def chosen_metric(name: str, num_classes: int, task: Task = "node", answer: Answer = "classes") -> MetricName:
    """The metric of a configuration, with `auto` resolved."""
    return default_metric(num_classes, task, answer) if name == "auto" else cast(MetricName, name)
