"""Metrics of labels and of values; what is unknown (NaN) does not count."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def score_labels(scores_Rk: Floats, targets_Rk: Floats) -> dict[str, float]:
    """ROC AUC and average precision, each averaged over labels that have both kinds; accuracy and F1 at 0.

    Args:
        scores_Rk: Logits: above 0 the label is predicted.
        targets_Rk: 0, 1 or NaN.
    """
    from sklearn import metrics

    known = np.isfinite(targets_Rk)
    if not known.any():
        return {}
    predicted, true = scores_Rk[known] > 0, targets_Rk[known] > 0
    found = {
        "accuracy": float((predicted == true).mean()),
        "micro_f1": float(metrics.f1_score(true, predicted, zero_division=0)),
    }
    areas, precisions, harmonic = [], [], []
    for scores, targets in zip(scores_Rk.T, targets_Rk.T, strict=True):
        some = np.isfinite(targets)
        labels = targets[some] > 0
        if not 0 < labels.sum() < labels.size:
            continue
        areas.append(metrics.roc_auc_score(labels, scores[some]))
        precisions.append(metrics.average_precision_score(labels, scores[some]))
        harmonic.append(metrics.f1_score(labels, scores[some] > 0, zero_division=0))
    if areas:
        found["roc_auc"] = float(np.mean(areas))
        found["average_precision"] = float(np.mean(precisions))
        found["macro_f1"] = float(np.mean(harmonic))
    return found


def score_values(predicted_Rk: Floats, targets_Rk: Floats) -> dict[str, float]:
    """MAE, RMSE, R² and Spearman's rank correlation, each averaged over the columns."""
    from scipy import stats
    from sklearn import metrics

    rows = []
    for predicted, targets in zip(predicted_Rk.T, targets_Rk.T, strict=True):
        some = np.isfinite(targets)
        true, guessed = targets[some], predicted[some]
        if true.size < 2 or np.ptp(true) == 0:
            continue
        constant = np.ptp(guessed) == 0
        rows.append(
            {
                "mae": float(np.abs(guessed - true).mean()),
                "rmse": float(np.sqrt(((guessed - true) ** 2).mean())),
                "r2": float(metrics.r2_score(true, guessed)),
                # A constant answer orders nothing.
                "spearman": 0.0 if constant else float(stats.spearmanr(true, guessed).statistic),
            }
        )
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} if rows else {}
