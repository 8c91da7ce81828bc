"""A trained model behind MLflow's `pyfunc`: nodes or graphs of a store in, classes and probabilities out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.prediction.node_tables import Floats
from pipeline.runtime.errors import UserError
from pipeline.training.mlflow_model import row_kind

if TYPE_CHECKING:
    import pandas as pd


class Answers:
    """The predictions of a checkpoint; those for the most recent store are cached.

    Args:
        checkpoint: Directory of a checkpoint.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._known: tuple[str, Floats] | None = None

    def __call__(self, numbers: Sequence[int], place: str | None) -> "pd.DataFrame":
        """Predict nodes or graphs.

        Args:
            numbers: Numbers of nodes, or of graphs of a collection.
            place: Directory of a store; by default the one that the model was trained on.

        Raises:
            UserError: If there is no such store, node or graph, or the model does not fit the store.
        """
        import pandas as pd

        probabilities = self.probabilities(place)
        chosen = np.asarray(numbers, dtype=np.int64)
        kind = row_kind(self._checkpoint)
        _check_numbers(chosen, len(probabilities), kind)
        rows = probabilities[chosen]
        from pipeline.training.checkpoint import read_origin

        answer = read_origin(self._checkpoint).inputs.answer
        name = "value" if answer == "values" else "probability"
        columns = {f"{name}_{index}": rows[:, index] for index in range(rows.shape[1])}
        if answer != "classes":
            return pd.DataFrame({kind: chosen, **columns})
        return pd.DataFrame({kind: chosen, "prediction": rows.argmax(1), **columns})

    def probabilities(self, place: str | None) -> Floats:
        """Probabilities of the classes of every node, or graph of a collection, [n, C]."""
        # A process that only looks up a model needs none of these imports.
        from pipeline.config.locations import parse_place
        from pipeline.prediction.inference import answer, require_classes, require_segments
        from pipeline.store.access import open_store
        from pipeline.training.checkpoint import read_origin

        origin = read_origin(self._checkpoint)
        require_classes(origin)
        store = open_store(parse_place(place) if place else origin.store)
        if self._known is not None and self._known[0] == store.digest:
            return self._known[1]
        origin.require_sizes(store, self._checkpoint)
        require_segments(origin, store)
        found = np.empty((store.num_rows, origin.inputs.num_classes), dtype=np.float32)
        for part in answer(self._checkpoint, origin, store, embeddings=False, parallel=False):
            found[part.row] = part.probabilities
        self._known = (store.digest, found)
        return found


def _check_numbers(numbers: NDArray[np.int64], count: int, kind: str) -> None:
    """Refuse numbers that the store does not have.

    Raises:
        UserError: If there is one.
    """
    strange = numbers[(numbers < 0) | (numbers >= count)]
    if strange.size:
        raise UserError(f"Expected {kind} ids from 0 to {count - 1} (got {strange[0]})")


def open_answers(checkpoint: Path) -> Answers:
    """Called by the logged model."""
    return Answers(checkpoint)
