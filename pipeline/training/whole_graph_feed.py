"""The whole graph in every step, for opponents that read all of it."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions
from pipeline.models.opponents import Opponent
from pipeline.models.tasks import read_targets
from pipeline.segments.stage import PARTS
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code
from pipeline.training.opponent_inputs import fit_scale, read_opponent_graph
from pipeline.training.protocol import OneStepFeed, Share


class WholeGraphFeed(OneStepFeed):
    """An epoch is one step on all training nodes.

    Args:
        store: The graph.
        config: The configuration.
        model: Notified when an epoch starts; the scale of its features is fitted to the store.
        device: Where the graph is kept.
    """

    def __init__(self, store: GraphStore, config: Config, model: Opponent, device: torch.device) -> None:
        self._graph = read_opponent_graph(store, device)
        self._model = model
        fit_scale(model, store)
        split = torch.from_numpy(store.split(config.data.split).astype(np.int64))
        self._targets = read_targets(store, config.data.split, device)
        self._nodes = {part: (split == part_code(part)).nonzero().squeeze(1).to(device) for part in PARTS}
        super().__init__(self._nodes["train"].numel(), 1)

    def start_epoch(self, epoch: int) -> None:
        super().start_epoch(epoch)
        self._model.start_epoch(epoch)

    def shares(self) -> Iterator[Share]:
        if self._pending:
            self._pending = False
            yield Share(self._graph, self._nodes["train"].numel())

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        nodes = self._nodes["train"]
        outputs = model(share.batch).float()[nodes]
        return self._targets.loss(outputs, self._targets.values[nodes], class_weights)

    def predict(self, model: nn.Module, part: str) -> Predictions:
        nodes = self._nodes[part]
        return self._targets.predictions(nodes, model(self._graph).float()[nodes])
