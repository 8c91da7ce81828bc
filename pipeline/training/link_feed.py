"""Links of one graph: the whole graph in every step, scored on true links and as many newly drawn pairs."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocn import GraphBatch
from cocn.heads import score_links
from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions, link_ranks
from pipeline.store.cleaning import distinct
from pipeline.store.graph_store import GraphStore
from pipeline.training.hidden_links import Links, draw_pairs, message_graph, read_links
from pipeline.training.inputs import part_code, read_graph
from pipeline.training.protocol import OneStepFeed, Share


class LinkFeed(OneStepFeed):
    """Every epoch is one step on all training links; heads are divided among ranks, which all see every link.

    The model sees the training links only. False links are drawn anew in every epoch, from seed and epoch,
    among the pairs that are not training links: hidden links may be drawn too, since the feed must not know
    them.
    """

    def __init__(self, store: GraphStore, config: Config, world_size: int, device: torch.device) -> None:
        self._links = read_links(store, config.data.split)
        self._graph = _read_message_graph(store, config, self._links).to(device)
        self._directed = store.directed
        self._num_nodes = store.num_nodes
        self._true = self._links.ends[self._links.part(part_code("train"))]
        self._known = distinct(self._true[:, 0] * store.num_nodes + self._true[:, 1])
        self._seed = config.train.seed
        self._device = device
        super().__init__(2 * len(self._true), world_size)

    def shares(self) -> Iterator[Share]:
        if self._pending:
            self._pending = False
            draw = np.random.default_rng([self._seed, self._epoch])
            false = draw_pairs(self._num_nodes, len(self._true), self._known, draw, directed=self._directed)
            pairs = torch.from_numpy(np.concatenate([self._true, false]).T.copy()).to(self._device)
            label = (torch.arange(pairs.size(1), device=self._device) < len(self._true)).long()
            yield Share(self._graph, pairs.size(1), label, pairs)

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        scores = _score_pairs(model(share.batch).float(), cast(Tensor, share.pairs), self._directed)
        label = cast(Tensor, share.label).to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, label, reduction="sum") / self._world_size

    def predict(self, model: nn.Module, part: str) -> Predictions:
        row = self._links.part(part_code(part))
        pairs = torch.from_numpy(self._links.ends[row].T.copy()).to(self._device)
        label = torch.from_numpy(self._links.labels[row]).to(self._device)
        scores = _score_pairs(model(self._graph).float(), pairs, self._directed)
        rank = torch.zeros(len(row), dtype=torch.double, device=self._device)
        rank[label == 1] = link_ranks(scores[label == 1], scores[label == 0])
        numbers = torch.from_numpy(row).to(self._device)
        return Predictions(numbers, scores, label, rank, torch.zeros_like(label))


def _read_message_graph(store: GraphStore, config: Config, links: Links) -> GraphBatch:
    """The graph that a link model sees: all nodes, and only the training links."""
    return read_graph(store, config, message_graph(links, store.num_nodes, directed=store.directed))


def _score_pairs(z_TC: Tensor, pairs_2L: Tensor, directed: bool) -> Tensor:
    """Score pairs; for an undirected graph, the mean of both directions. Returns [L]."""
    scores = score_links(z_TC, pairs_2L)
    return scores if directed else (scores + score_links(z_TC, pairs_2L.flip(0))) / 2
