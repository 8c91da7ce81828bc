"""Splits of the nodes into training, validation and test parts."""

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
    """Random splits that keep the share of every class in every part.

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
