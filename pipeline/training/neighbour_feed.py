"""Mini-batches of sampled neighbourhoods, for GraphSAGE, through PyG's `NeighborLoader`.

PyG samples with pyg-lib or torch-sparse; without either the whole graph is trained on at once.
"""

import logging
import warnings
from collections.abc import Iterator
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import cocn
from cocn import GraphBatch
from pipeline.config.loading import Config
from pipeline.models.metrics import Predictions
from pipeline.segments.loader import LoaderState
from pipeline.segments.stage import PARTS
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import part_code, read_graph
from pipeline.training.protocol import Share

logger = logging.getLogger(__name__)

SAMPLED = ("sage",)
PRIME = 1_000_003


@cache
def can_sample() -> bool:
    """Whether PyG has what it samples neighbours with; says so once if it has not."""
    from torch_geometric import typing

    found = bool(typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE)
    if not found:
        logger.warning(
            "sage reads the whole graph in every step: sampling neighbours needs pyg-lib or torch-sparse"
        )
    return found


class NeighbourFeed:
    """Mini-batches of training nodes with neighbours sampled around them; answers come from the whole graph.

    Batches and samples depend on seed, epoch and step alone, so a resumed training repeats them.
    """

    def __init__(self, store: GraphStore, config: Config, device: torch.device) -> None:
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        from pipeline.models.baselines import edge_index

        self._graph = read_graph(store, config).to(device)
        self._device = device
        self._batch_size, self._seed = config.train.batch_size, config.train.seed
        split = torch.from_numpy(store.split(config.data.split).copy())
        self._labels = torch.from_numpy(store.labels().copy()).long()
        self._nodes = {part: (split == part_code(part)).nonzero().squeeze(1) for part in PARTS}
        arranged = self._graph.arrangement.cpu()
        edges = arranged[edge_index(self._graph).cpu()]
        self._features = torch.from_numpy(store.features().copy()) if store.manifest.num_features else None
        layers = max(config.model.unit_layers, 1)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*without a 'pyg-lib' installation.*")
            self._loader = NeighborLoader(
                Data(edge_index=edges, num_nodes=arranged.numel()),
                num_neighbors=[config.model.neighbours] * layers,
                input_nodes=self._nodes["train"],
            )
        self._epoch = self._step = 0

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._nodes["train"].numel() // self._batch_size)

    @property
    def epoch_ended(self) -> bool:
        """Whether the running epoch has no more shares."""
        return self._step >= self.steps_per_epoch

    def start_epoch(self, epoch: int) -> None:
        """Shuffle anew, or stay where the cursor is if that epoch runs already."""
        if epoch != self._epoch:
            self._epoch, self._step = epoch, 0

    def shares(self) -> Iterator[Share]:
        """What is left of the running epoch."""
        nodes = self._nodes["train"]
        order = torch.randperm(nodes.numel(), generator=torch.Generator().manual_seed(self._number(0)))
        for step in range(self._step, self.steps_per_epoch):
            chosen = order[step * self._batch_size : (step + 1) * self._batch_size]
            # PyG draws from the one generator of torch, which the loop seeds again after this.
            torch.manual_seed(self._number(step + 1))
            batch, label = self._sample(chosen)
            self._step = step + 1
            yield Share(batch, chosen.numel(), label=label)

    def losses(self, model: nn.Module, share: Share, class_weights: Tensor | None) -> Tensor:
        """Cross-entropy summed over the nodes that neighbours were sampled around, which come first."""
        if share.label is None:
            raise ValueError("Expected a share with labels (got none)")
        logits = model(share.batch).float()[: share.label.numel()]
        return F.cross_entropy(logits, share.label, weight=class_weights, reduction="sum", ignore_index=-1)

    def predict(self, model: nn.Module, part: str) -> Predictions:
        """Answers for a part, with every neighbour."""
        nodes = self._nodes[part].to(self._device)
        logits = model(self._graph).float()[nodes]
        return Predictions(nodes, logits, self._labels[self._nodes[part]].to(self._device))

    def cursor(self) -> LoaderState:
        """Place in the running epoch."""
        rows = self._nodes["train"].numel()
        done = min(self._step * self._batch_size, rows)
        return LoaderState(
            epoch=self._epoch, position=done, num_rows=rows, batch_size=self._batch_size, seed=self._seed
        )

    def sequencer(self) -> None:
        """Nothing is ordered here."""

    def restore(self, cursor: LoaderState | None, sequencer: object) -> None:
        """Go to a saved place."""
        if cursor is not None:
            self._epoch, self._step = cursor.epoch, -(-cursor.position // self._batch_size)

    def _number(self, step: int) -> int:
        return ((self._seed * PRIME + self._epoch) * PRIME + step) % 2**63

    def _sample(self, chosen: Tensor) -> tuple[GraphBatch, Tensor]:
        found = self._loader(chosen)
        here = found.n_id
        features = None if self._features is None else self._features[here]
        batch = cocn.prepare(
            features,
            found.edge_index,
            num_nodes=here.numel(),
            tie_rank=torch.arange(here.numel()),  # PyG puts the chosen nodes first, and so they stay
            find_orbits=False,
        )
        return batch.to(self._device), self._labels[here[: chosen.numel()]].to(self._device)
