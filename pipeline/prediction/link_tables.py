"""The file of predicted links: one row for every training, validation or test pair."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pipeline.models.metrics import Predictions, evaluate_predictions
from pipeline.models.networks import Network
from pipeline.storage.files import atomic_file
from pipeline.store.arrays import SPLIT_NAMES, Integers
from pipeline.store.graph_store import GraphStore
from pipeline.training.feeds import open_feed
from pipeline.training.hidden_links import read_links
from pipeline.training.origin import Origin


@dataclass(frozen=True)
class Written:
    """What was written to a file."""

    rows: str
    num_rows: int
    scores: dict[str, dict[str, float]]


def write_link_predictions(
    model: Network, origin: Origin, store: GraphStore, out: Path, device: torch.device
) -> Written:
    """Score the pairs of every part and write them, in the order of the store.

    Columns: `source` and `target` (node numbers), `prediction` and `probability` of a link, `label`, `split`,
    and `rank` of true links among their competitors, null for false ones. The links that a model of one graph
    sees have no competitors, so its training part has no scores and no ranks.
    """
    feed = open_feed(store, origin.config, model, 0, 1, device)
    ends = store.pairs().ends if store.is_collection else read_links(store, origin.config.data.split).ends
    tables, scores = [], {}
    with torch.inference_mode():
        for part in SPLIT_NAMES:
            found = feed.predict(model, part)
            ranked = bool((found.label == 0).any())
            tables.append(_table(found, ends, part, ranked))
            if ranked:
                scores[part] = evaluate_predictions(found).metrics
    table = pa.concat_tables(tables).sort_by("row").drop_columns(["row"])
    with atomic_file(out) as file:
        pq.write_table(table, file)
    return Written("pairs", table.num_rows, scores)


def _table(found: Predictions, ends: Integers, part: str, ranked: bool) -> pa.Table:
    row, probability = found.row.cpu().numpy(), found.logits.double().sigmoid().cpu().numpy()
    rank = np.zeros(len(row)) if found.rank is None else found.rank.cpu().numpy()
    return pa.table(
        {
            "row": row,
            "source": ends[row, 0],
            "target": ends[row, 1],
            "prediction": (probability > 0.5).astype(np.int64),
            "probability": probability,
            "label": found.label.cpu().numpy(),
            "split": pa.array([part]).take(pa.array(np.zeros(len(row), dtype=np.int64))),
            "rank": pa.array(rank, mask=(rank == 0) | (not ranked)),
        }
    )
