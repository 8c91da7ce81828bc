"""The file of predictions: one row per node, or graph, in the order of the store.

Predictions arrive in the order of shards and tasks; until their turn they wait in an unnamed file, which the
system removes whatever happens, so memory does not grow with the graph.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.models.metrics import score
from pipeline.models.target_metrics import score_labels, score_values
from pipeline.storage.files import atomic_file, list_column, require_space
from pipeline.store.arrays import SPLIT_NAMES
from pipeline.store.classes import class_names
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code

_GROUP_ROWS = 65_536
#: Parts with more labelled nodes are not scored, so that memory stays bounded.
_SCORED_ROWS = 2_000_000

Floats = NDArray[np.float32]


@contextmanager
def scratch_rows(out: Path, num_rows: int, num_columns: int) -> Iterator[Floats]:
    """A matrix on disk that no kill leaves behind, because its file has no name."""
    require_space(out.absolute().parent, 2 * 4 * num_rows * num_columns)
    with tempfile.TemporaryFile(dir=out.absolute().parent) as file:
        yield np.memmap(file, dtype=np.float32, mode="w+", shape=(num_rows, num_columns))


def write_parquet(
    out: Path, store: GraphStore, parts: NDArray[np.int8], probabilities: Floats, embeddings: Floats
) -> None:
    """Write the file, one row group at a time; it appears once it is complete.

    Columns: `id` (the source's own, or the number of the node or graph), `prediction`, `label` and `split`
    (null if there is none), `probabilities` of the classes, `prediction_class` and `label_class` if classes
    have names, and `embedding` if there are any.
    """
    groups = (
        rows_table(store, parts, probabilities, embeddings, slice(start, start + _GROUP_ROWS))
        for start in range(0, store.num_rows, _GROUP_ROWS)
    )
    with atomic_file(out) as file:
        first = next(groups)
        with pq.ParquetWriter(file, first.schema) as writer:
            writer.write_table(first)
            for table in groups:
                writer.write_table(table)


def rows_table(
    store: GraphStore, parts: NDArray[np.int8], probabilities: Floats, embeddings: Floats, rows: slice
) -> pa.Table:
    """A range of rows of the file."""
    part, ids = parts[rows], store.ids()
    numbers = np.arange(rows.start, rows.start + part.size)
    columns = {
        "id": pa.array(numbers) if ids is None else ids.slice(rows.start, part.size),
        **_answers(store, np.array(probabilities[rows]), rows),
        "split": pa.array(SPLIT_NAMES).take(pa.array(part.astype(np.int64), mask=part < 0)),
    }
    if store.manifest.answer != "values":
        columns["probabilities"] = list_column(np.array(probabilities[rows]))
    if (names := class_names(store)) is not None:
        classes = pa.array(names)
        columns["prediction_class"] = classes.take(columns["prediction"])
        columns["label_class"] = classes.take(columns["label"])
    if embeddings.shape[1]:
        columns["embedding"] = list_column(np.array(embeddings[rows]))
    return pa.table(columns)


def _answers(store: GraphStore, answers: Floats, rows: slice) -> dict[str, pa.Array]:
    """Prediction and label: a class, or lists of labels or values."""
    targets = store.targets()
    if targets is None:
        label = store.labels()[rows]
        return {
            "prediction": pa.array(answers.argmax(1)),
            "label": pa.array(label, mask=label < 0),
        }
    predicted = answers if store.manifest.answer == "values" else (answers > 0.5).astype(np.int8)
    return {"prediction": list_column(predicted), "label": list_column(np.array(targets[rows]))}


def score_parts(
    probabilities: Floats, store: GraphStore, parts: NDArray[np.int8]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Metrics of the parts that have labels."""
    labels, targets = store.labels(), store.targets()
    known = labels >= 0 if targets is None else np.isfinite(targets).any(1)
    for part in SPLIT_NAMES:
        nodes = np.flatnonzero((parts == part_code(part)) & known)
        if 0 < nodes.size <= _SCORED_ROWS:
            answers = probabilities[nodes].astype(np.float64)
            if targets is None:
                yield part, score(answers, labels[nodes])
            elif store.manifest.answer == "labels":
                yield part, score_labels(answers - 0.5, targets[nodes].astype(np.float64))
            else:
                yield part, score_values(answers, targets[nodes].astype(np.float64))
