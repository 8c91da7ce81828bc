"""Mini-batches of the graphs of a collection, for graph labels and for links inside graphs."""

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from cocn import GraphBatch
from cocn.heads import score_links
from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions, gather_from_ranks
from pipeline.runtime.errors import UserError
from pipeline.segments.batching import BatchPlan, EpochOrder
from pipeline.store.arrays import Task
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.training.graph_pool import GraphPool, LabelledPairs, read_pool
from pipeline.training.protocol import BatchedFeed, Share

#: Graphs per batch in evaluation, where the result does not depend on it.
_EVALUATION_GRAPHS = 64


class CollectionFeed(BatchedFeed):
    """Mini-batches of graphs; the graphs of a step are divided among the ranks.

    The order depends on seed and epoch only: in each step all ranks together see the same graphs for any
    number of ranks, every rank takes the same number of steps, and the cursor can resume in mid-epoch.

    Args:
        store: The collection, arranged.
        config: The configuration.
        task: `graph`, or `link` for collections with pairs.
        rank: Number of this rank.
        world_size: Number of ranks.
        device: Where the graphs are kept.

    Raises:
        UserError: if a rank would have no graphs in some step.
    """

    def __init__(
        self,
        store: GraphStore,
        config: Config,
        task: Task,
        rank: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        self._pool = read_pool(store, config, task, device)
        self._labels = torch.from_numpy(store.labels().astype(np.int64)).to(device)
        self._links = task == "link"
        split, protocol = store.split(config.data.split), config.data.protocol
        self._parts = {part: rows_of_part(split, part, protocol) for part in ("train", "val", "test")}
        self._rank, self._world_size, self._device = rank, world_size, device
        try:
            plan = BatchPlan(self._parts["train"].size, config.train.batch_size, world_size)
        except ValueError as error:
            raise UserError(f"{error}: raise train.batch_size or lower resources.workers") from error
        super().__init__(plan, config.train.seed)

    def shares(self) -> Iterator[Share]:
        plan, graphs = self._plan, self._parts["train"]
        order = EpochOrder(plan.num_rows, self._seed, self._epoch, shuffle=True)
        for step in range(self._step, plan.num_steps):
            everyone = graphs[order.rows(plan.start(step), plan.start(step + 1))]
            start, stop = (place - plan.start(step) for place in plan.share(step, self._rank))
            self._step = step + 1
            yield self._share(self._tensor(everyone), slice(start, stop))

    def _share(self, everyone: Tensor, own: slice) -> Share:
        parts = self._pool.parts_of_like_size(everyone[own])
        graphs, batches = torch.cat(parts), tuple(self._pool.batch(part) for part in parts)
        if not self._links:
            return Share(batches, everyone.numel(), self._labels[graphs])
        pairs = self._pool.pairs_of(graphs)
        return Share(batches, self._pool.count_pairs(everyone), pairs.label, pairs.ends)

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        answers, label = model(share.batch).float(), cast(Tensor, share.label)
        if share.pairs is not None:
            scores = score_links(answers, share.pairs)
            return F.binary_cross_entropy_with_logits(scores, label.to(scores.dtype), reduction="sum")
        return F.cross_entropy(answers, label, weight=class_weights, reduction="sum", ignore_index=-1)

    def predict(self, model: nn.Module, part: str) -> Predictions:
        graphs = self._parts[part]
        start, stop = (graphs.size * rank // self._world_size for rank in (self._rank, self._rank + 1))
        own = self._tensor(graphs[start:stop])
        columns = [
            self._answer_links(model, chosen, batch) if self._links else self._answer(model, chosen, batch)
            for chosen, batch in evaluation_batches(self._pool, own)
        ]
        joined = [gather_from_ranks(torch.cat(column)) for column in zip(*columns, strict=True)]
        order = joined[0].argsort()
        return Predictions(*(column[order] for column in joined))

    def _answer(self, model: nn.Module, graphs: Tensor, batch: GraphBatch) -> tuple[Tensor, ...]:
        return graphs, model(batch).float(), self._labels[graphs]

    def _answer_links(self, model: nn.Module, graphs: Tensor, batch: GraphBatch) -> tuple[Tensor, ...]:
        pairs = self._pool.pairs_of(graphs)
        z = model(batch).float()
        scores = score_links(z, pairs.ends)
        return pairs.number, scores, pairs.label, _rank_contacts(z, batch, pairs), graphs[pairs.graph]

    def _tensor(self, graphs: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(graphs).to(self._device)


def evaluation_batches(pool: GraphPool, graphs: Tensor) -> Iterator[tuple[Tensor, GraphBatch]]:
    """Group graphs of similar size, to keep padding small."""
    for chosen in torch.split(pool.by_size(graphs), _EVALUATION_GRAPHS):
        if chosen.numel():
            yield chosen, pool.batch(chosen)


def _rank_contacts(z_TC: Tensor, batch: GraphBatch, pairs: LabelledPairs) -> Tensor:
    """Rank of every true pair (u, v) among (u, w) for all nodes w of its graph; 0 for false pairs. [P]

    This is the protocol of the Long Range Graph Benchmark: u itself, and w that form other true pairs,
    compete too. Among equal scores a pair takes the middle rank.
    """
    as_source, as_target = (batch.pad(half) for half in z_TC.chunk(2, dim=1))
    true = pairs.label == 1
    graph, (source, target) = pairs.graph[true], pairs.ends[:, true]
    starts = batch.lengths.cumsum(0) - batch.lengths
    source, target = source - starts[graph], target - starts[graph]
    scores = torch.einsum("pc,pnc->pn", as_source[graph, source], as_target[graph])
    places = torch.arange(batch.max_length, device=scores.device)
    scores = scores.masked_fill(places >= batch.lengths[graph, None], -torch.inf)
    own = scores.gather(1, target[:, None])
    above = (scores > own).sum(1)
    equal = (scores == own).sum(1) - 1
    ranks = torch.zeros(pairs.label.numel(), dtype=torch.double, device=scores.device)
    ranks[true] = 1 + above + equal.double() / 2
    return ranks
