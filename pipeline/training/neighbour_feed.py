"""Mini-batches of training nodes with neighbours sampled around them, for GraphSAGE on large graphs."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions
from pipeline.models.opponents import OPPONENTS, Opponent, OpponentGraph
from pipeline.models.tasks import read_targets
from pipeline.segments.batching import BatchPlan
from pipeline.segments.stage import PARTS
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code
from pipeline.training.opponent_inputs import fit_scale, read_opponent_graph
from pipeline.training.protocol import BatchedFeed, Share
from pipeline.training.sampling import NeighbourSampler

#: From this many nodes on `auto` samples: a step on a whole larger graph takes seconds.
_SAMPLED_NODES = 200_000
_PRIME = 1_000_003


def samples_neighbours(config: Config, num_nodes: int) -> bool:
    """Whether a model trains on sampled neighbourhoods of a graph of the given size."""
    model = config.model
    if model.name not in OPPONENTS or OPPONENTS[model.name].reads != "samples":
        return False
    return model.opponent.sampling == "always" or (
        model.opponent.sampling == "auto" and num_nodes >= _SAMPLED_NODES
    )


class NeighbourFeed(BatchedFeed):
    """Mini-batches of training nodes with neighbours sampled around them; predictions use the whole graph.

    Batches and samples depend on seed, epoch and step only, so a resumed training repeats them.
    """

    def __init__(self, store: GraphStore, config: Config, model: Opponent, device: torch.device) -> None:
        self._graph = read_opponent_graph(store, device)
        fit_scale(model, store)
        self._device = device
        split = store.split(config.data.split)
        self._nodes = {part: np.flatnonzero(split == part_code(part)) for part in PARTS}
        self._targets = read_targets(store, config.data.split, device)
        super().__init__(BatchPlan(self._nodes["train"].size, config.train.batch_size), config.train.seed)
        # Half as many from hop to hop: with equal fan-outs a neighbourhood would soon be the whole graph.
        fan_outs = [max(config.model.neighbours >> hop, 2) for hop in range(config.model.opponent.layers)]
        self._sampler = NeighbourSampler(store.undirected_csr(), fan_outs)

    def shares(self) -> Iterator[Share]:
        """The rest of the current epoch."""
        nodes, plan = self._nodes["train"], self._plan
        order = np.random.default_rng([self._seed, self._epoch]).permutation(nodes.size)
        for step in range(self._step, plan.num_steps):
            chosen = nodes[order[plan.start(step) : plan.start(step + 1)]]
            batch = self._sample(chosen, step)
            self._step = step + 1
            yield Share(batch, chosen.size, self._targets.values[torch.from_numpy(chosen).to(self._device)])

    def _sample(self, chosen: "np.ndarray[tuple[int], np.dtype[np.int64]]", step: int) -> OpponentGraph:
        number = ((self._seed * _PRIME + self._epoch) * _PRIME + step) % 2**63
        around = self._sampler.sample(chosen, number)
        x = self._graph.x[torch.from_numpy(around.nodes).to(self._device)]
        return OpponentGraph(x, around.adjacency, both_ways=False)

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        """The loss summed over the nodes that neighbours were sampled around, which come first."""
        if share.label is None:
            raise ValueError("Expected a share with labels (got none)")
        outputs = model(share.batch).float()[: share.label.size(0)]
        return self._targets.loss(outputs, share.label, class_weights)

    def predict(self, model: nn.Module, part: str) -> Predictions:
        """Predictions for a part, using every neighbour."""
        nodes = torch.from_numpy(self._nodes[part]).to(self._device)
        return self._targets.predictions(nodes, model(self._graph).float()[nodes])
