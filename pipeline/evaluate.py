"""Metrics over all nodes of a part, whatever the number of ranks and the size of batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

MetricName = Literal["accuracy", "roc_auc", "macro_f1", "average_precision"]


@dataclass(frozen=True)
class Evaluation:
    """Scores of a part of the nodes.

    Attributes:
        num_nodes: labelled nodes that were scored.
        loss: mean cross-entropy.
        metrics: every metric that the number of classes allows; none where the loss is not finite.
    """

    num_nodes: int
    loss: float
    metrics: dict[str, float]


def default_metric(num_classes: int) -> MetricName:
    """ROC AUC for two classes, accuracy for more."""
    return "roc_auc" if num_classes == 2 else "accuracy"


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
    if probabilities_RC.shape[1] == 2 and 0 < labels_R.sum() < labels_R.size:
        scores["roc_auc"] = float(metrics.roc_auc_score(labels_R, probabilities_RC[:, 1]))
        scores["average_precision"] = float(metrics.average_precision_score(labels_R, probabilities_RC[:, 1]))
    return scores


@dataclass(frozen=True)
class LinkScores:
    """How true links rank among others.

    Attributes:
        mrr: mean reciprocal rank.
        hits: share of true links among the best k, for each k.
    """

    mrr: float
    hits: dict[int, float]


def score_ranking(positive_P: Tensor, negative: Tensor, ks: Sequence[int] = (1, 10, 50, 100)) -> LinkScores:
    """MRR and Hits@k of true links among others.

    A link that scores the same as others takes the middle of the places they share, so that a constant score
    earns nothing.

    Shapes:
        positive_P: [P] scores of true links
        negative: [Q] scores of false links that all true ones are ranked among, or [P, Q] of their own
    """
    rank = link_ranks(positive_P, negative)
    hits = {k: float((rank <= k).double().mean()) for k in ks}
    return LinkScores(mrr=float((1 / rank).mean()), hits=hits)


def link_ranks(positive_P: Tensor, negative: Tensor) -> Tensor:
    """Rank of each true link, from 1, halves where scores are equal. Returns [P]."""
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


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all ranks, those of rank 0 first; ranks may have different numbers of them."""
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


def chosen_metric(name: str, num_classes: int) -> MetricName:
    """The metric of a configuration, `auto` resolved."""
    return default_metric(num_classes) if name == "auto" else cast(MetricName, name)
