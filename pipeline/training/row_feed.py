"""Mini-batches of rows for networks that read no graph while they train; only needed rows are computed."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions
from pipeline.models.opponents import RowBatch
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.models.tasks import read_targets
from pipeline.segments.batching import BatchPlan
from pipeline.segments.stage import PARTS
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code
from pipeline.training.opponent_inputs import RowTable, read_rows, scale_rows
from pipeline.training.protocol import BatchedFeed, Share

#: Rows evaluated at once.
_EVALUATION_ROWS = 16_384
#: Limit in bytes for copying training rows into one array; beyond it they are read in place.
_RESIDENT_BYTES = 2**30


class RowFeed(BatchedFeed):
    """Mini-batches of training rows; the order depends on seed and epoch only.

    Args:
        store: The graph.
        config: The configuration.
        model: Determines the blocks to read; its scales are fitted to the rows.
        device: Where batches go.
    """

    def __init__(self, store: GraphStore, config: Config, model: RowOpponent, device: torch.device) -> None:
        self._table = read_rows(store, model)
        self._device = device
        split = store.split(config.data.split)
        self._rows = {part: np.flatnonzero(split == part_code(part)) for part in PARTS}
        self._targets = read_targets(store, config.data.split, device)
        train = self._rows["train"]
        super().__init__(BatchPlan(train.size, config.train.batch_size), config.train.seed)
        model.fit(self._table.take(train[scale_rows(train.size)], device))
        self._train = _ResidentRows.of(self._table, train, device)
        self._train_labels = self._targets.values[torch.from_numpy(train).to(device)]

    def shares(self) -> Iterator[Share]:
        plan = self._plan
        order = np.random.default_rng([self._seed, self._epoch]).permutation(plan.num_rows)
        for step in range(self._step, plan.num_steps):
            chosen = order[plan.start(step) : plan.start(step + 1)]
            batch = self._train.take(chosen)
            label = self._train_labels[torch.from_numpy(chosen).to(self._device)]
            self._step = step + 1
            yield Share(batch, chosen.size, label)

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        if share.label is None:
            raise ValueError("Expected a share with labels (got none)")
        return self._targets.loss(model(share.batch).float(), share.label, class_weights)

    def num_rows(self, part: str) -> int:
        return int(self._rows[part].size)

    def predict(self, model: nn.Module, part: str) -> Predictions:
        return self._answer(model, self._rows[part])

    def predict_sample(self, model: nn.Module, part: str, share: float) -> Predictions:
        rows = self._rows[part]
        count = max(round(share * rows.size), 1)
        chosen = np.random.default_rng([self._seed, part_code(part)]).choice(rows, count, replace=False)
        return self._answer(model, np.sort(chosen))

    def _answer(self, model: nn.Module, rows: NDArray[np.int64]) -> Predictions:
        outputs = [model(batch).float() for _, batch in row_batches(self._table, rows, self._device)]
        return self._targets.predictions(torch.from_numpy(rows).to(self._device), torch.cat(outputs))


class _ResidentRows:
    """The training rows, copied into one array if they fit, otherwise read in place."""

    def __init__(
        self, table: RowTable, rows: NDArray[np.int64], resident: RowBatch | None, device: torch.device
    ) -> None:
        self._table, self._rows, self._resident, self._device = table, rows, resident, device

    @classmethod
    def of(cls, table: RowTable, rows: NDArray[np.int64], device: torch.device) -> "_ResidentRows":
        size = rows.size * sum(block.shape[1] * block.itemsize for block in table.blocks)
        fits = table.indptr is None and size <= _RESIDENT_BYTES
        return cls(table, rows, table.take(rows, device) if fits else None, device)

    def take(self, chosen: NDArray[np.int64]) -> RowBatch:
        """Training rows by their index among the training rows."""
        if self._resident is None:
            return self._table.take(self._rows[chosen], self._device)
        places = torch.from_numpy(chosen).to(self._device)
        return RowBatch(tuple(block.index_select(0, places) for block in self._resident.blocks))


def row_batches(
    table: RowTable, rows: NDArray[np.int64], device: torch.device
) -> Iterator[tuple[NDArray[np.int64], RowBatch]]:
    """The given rows in batches for evaluation, with their numbers."""
    for start in range(0, rows.size, _EVALUATION_ROWS):
        chosen = rows[start : start + _EVALUATION_ROWS]
        yield chosen, table.take(chosen, device)
