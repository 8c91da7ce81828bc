"""What a model learns to answer, and what follows from it: the loss, the scale of outputs, and predictions.

| answer | target of a node | loss | output as people read it |
|---|---|---|---|
| `classes` | one of C classes, −1 where unknown | cross-entropy | probabilities of the classes |
| `labels` | k labels, 0 or 1, NaN where unknown | binary cross-entropy, mean over labels | k probabilities |
| `values` | k numbers, NaN where unknown | squared error of standardised values, mean over them | k numbers |

Legend: n nodes, R rows, C classes, k columns of targets.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.models.metrics import Predictions
from pipeline.store.arrays import Answer
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part

#: Mean and standard deviation of each column of values.
Scale = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Targets:
    """What is known of every node.

    Attributes:
        answer: what kind of thing it is.
        values: [n] classes, or [n, k] labels or values.
        scale: of values, over the training part.
    """

    answer: Answer
    values: Tensor
    scale: Scale = ()

    def loss(
        self, outputs: Tensor, target: Tensor, class_weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """The loss summed over rows; what is unknown does not count.

        Shapes:
            outputs: [R, C] or [R, k]
            target: rows of `values`
        """
        if self.answer == "classes":
            return F.cross_entropy(
                outputs,
                target,
                weight=class_weights,
                reduction="sum",
                ignore_index=-1,
                label_smoothing=smoothing,
            )
        known = target.isfinite()
        # Zeros in place of gaps, before any arithmetic: NaN times 0 is NaN, in gradients too.
        filled = torch.where(known, target, torch.zeros_like(target))
        if self.answer == "labels":
            each = F.binary_cross_entropy_with_logits(outputs, filled, reduction="none")
        else:
            mean, deviation = self._columns(outputs)
            each = (outputs - (filled - mean) / deviation) ** 2
        counts = known.sum(1).clamp(min=1)
        return ((each * known).sum(1) / counts).sum()

    def predictions(self, rows: Tensor, outputs: Tensor) -> Predictions:
        """Outputs for some nodes beside what is known of them, values in their own units."""
        if self.answer == "values":
            mean, deviation = self._columns(outputs)
            outputs = outputs * deviation + mean
        return Predictions(rows, outputs, self.values[rows], answer=self.answer)

    def _columns(self, like: Tensor) -> tuple[Tensor, Tensor]:
        mean, deviation = like.new_tensor(self.scale).unbind(1)
        return mean, deviation


def read_targets(store: GraphStore, split: int, device: torch.device) -> Targets:
    """What a store knows of its nodes."""
    found = store.targets()
    if found is None:
        return Targets("classes", torch.from_numpy(store.labels().astype(np.int64)).to(device))
    values = torch.from_numpy(np.array(found)).to(device)
    return Targets(store.manifest.answer, values, target_scale(store, split))


def target_scale(store: GraphStore, split: int) -> Scale:
    """Mean and standard deviation of values over the training part; none where there are no values."""
    found = store.targets()
    if found is None or store.manifest.answer != "values" or not store.num_splits:
        return ()
    known = found[rows_of_part(store.split(split), "train")].astype(np.float64)
    present = np.isfinite(known)
    counts = np.maximum(present.sum(0), 1)
    mean = np.where(present, known, 0).sum(0) / counts
    deviation = np.sqrt(np.where(present, (known - mean) ** 2, 0).sum(0) / counts)
    return tuple((float(m), float(d) or 1.0) for m, d in zip(mean, deviation, strict=True))


def read_outputs(outputs_RC: Tensor, answer: Answer, scale: Scale) -> Tensor:
    """Outputs of a model as people read them: probabilities, or values in their own units."""
    if answer == "classes":
        return outputs_RC.softmax(1)
    if answer == "labels":
        return outputs_RC.sigmoid()
    mean, deviation = outputs_RC.new_tensor(scale).unbind(1)
    return outputs_RC * deviation + mean
