"""Splits of nodes, or of graphs, into training, validation and test parts."""

import numpy as np
from numpy.typing import NDArray

TRAIN, VALIDATION, TEST, NONE = 0, 1, 2, -1


def random_splits(
    labels: NDArray[np.int64],
    *,
    num_splits: int = 10,
    train: float = 0.5,
    validation: float = 0.25,
    seed: int = 0,
) -> NDArray[np.int8]:
    """Random splits that preserve the share of every class in every part.

    Unlabelled nodes (−1) belong to no part, unless no node has a label: then all nodes are split.

    Args:
        labels: Class of every node.
        num_splits: How many independent splits.
        train: Share of training nodes.
        validation: Share of validation nodes; the rest is the test part.
        seed: Seed of the splits.

    Shapes:
        labels [n] to splits [num_splits, n].
    """
    if not (train > 0 and validation >= 0 and train + validation <= 1):
        raise ValueError(f"Expected 'train' and 'validation' to be shares of 1 (got {train}, {validation})")
    classes = labels if (labels >= 0).any() else np.zeros_like(labels)
    splits = np.full((num_splits, len(labels)), NONE, dtype=np.int8)
    generator = np.random.default_rng(seed)
    for row in splits:
        _fill(row, classes, (train, train + validation), generator)
    return splits


def cross_validation(labels: NDArray[np.int64], *, num_folds: int = 10, seed: int = 0) -> NDArray[np.int8]:
    """Stratified cross-validation with the folds of the GIN paper (Xu et al., 2019), at seed 0.

    Split i tests on fold i and validates on the fold after it, so that nothing is selected on the test part.
    GIN itself also trains on that fold and selects on the test part, which `data.protocol: gin` reproduces.

    Args:
        labels: Class of every graph.
        num_folds: Number of folds; each is the test part once.
        seed: Seed of the shuffle before the folds are cut.

    Shapes:
        labels [g] to splits [num_folds, g].

    Raises:
        ValueError: If a class has fewer graphs than there are folds.
    """
    from sklearn.model_selection import StratifiedKFold

    smallest = int(np.bincount(labels).min())
    if not 3 <= num_folds <= smallest:
        raise ValueError(
            f"Expected 'num_splits' to be from 3 to {smallest}, the graphs of the smallest class "
            f"(got {num_folds})"
        )
    fold = np.empty(len(labels), dtype=np.int64)
    folds = StratifiedKFold(num_folds, shuffle=True, random_state=seed).split(labels, labels)
    for number, (_, chosen) in enumerate(folds):
        fold[chosen] = number
    tested = np.arange(num_folds)[:, None]
    splits = np.full((num_folds, len(labels)), TRAIN, dtype=np.int8)
    splits[fold == (tested + 1) % num_folds] = VALIDATION
    splits[fold == tested] = TEST
    return splits


def rows_of_part(split: NDArray[np.int8], part: str, protocol: str = "holdout") -> NDArray[np.int64]:
    """The rows of a part, `train`, `val` or `test`.

    Under the protocol `gin` of the GIN paper the validation fold is trained on, and the test fold validates.
    """
    if protocol == "gin":
        codes = {"train": [TRAIN, VALIDATION], "val": [TEST], "test": [TEST]}
    else:
        codes = {"train": [TRAIN], "val": [VALIDATION], "test": [TEST]}
    return np.flatnonzero(np.isin(split, codes[part]))


def _fill(
    row: NDArray[np.int8],
    classes: NDArray[np.int64],
    bounds: tuple[float, float],
    generator: np.random.Generator,
) -> None:
    # Sorted by class and, within a class, at random: the place within the class decides the part.
    labelled = np.flatnonzero(classes >= 0)
    order = labelled[np.lexsort((generator.random(len(labelled)), classes[labelled]))]
    sizes = np.bincount(classes[order])
    starts = np.cumsum(sizes) - sizes
    place = np.arange(len(order)) - starts[classes[order]]
    size = sizes[classes[order]]
    row[order] = TEST
    row[order[place < np.round(size * bounds[1])]] = VALIDATION
    row[order[place < np.round(size * bounds[0])]] = TRAIN


def splits_from_masks(
    train: NDArray[np.bool_], validation: NDArray[np.bool_], test: NDArray[np.bool_]
) -> NDArray[np.int8]:
    """Splits from boolean masks, [n] or [s, n] each; where masks overlap the earlier part wins."""
    # Some published masks are bytes, which would select nodes 0 and 1 instead of masking.
    parts = [np.atleast_2d(mask).astype(np.bool_) for mask in (train, validation, test)]
    splits = np.full(parts[0].shape, NONE, dtype=np.int8)
    for part in (TEST, VALIDATION, TRAIN):
        splits[parts[part]] = part
    return splits
