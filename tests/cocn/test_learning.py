"""Training sanity: the models fit, the order changes, and learning it pays off where it should."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocn import CoCN, ExpandedCoCN, SegmentCoCN, SparseCoCN, VanillaCoCN
from tests.cocn.cases import random_graph

NO_EDGES = torch.empty(2, 0, dtype=torch.long)


@pytest.mark.parametrize("model", [VanillaCoCN, ExpandedCoCN, SparseCoCN, SegmentCoCN])
def test_node_models_fit_a_small_graph(model: type[CoCN]) -> None:
    """Thirty nodes with random labels: nothing to generalise, everything to memorise."""
    graph = random_graph(1, 30, 60, features=6, dtype=torch.float32)
    labels = torch.randint(3, (30,), generator=torch.Generator().manual_seed(1))
    short = {"segment_length": 4} if model is SegmentCoCN else {}
    chosen = model(6, 32, 3, num_heads=2, kernel_size=3, unit_layers=1, pool_layers=1, **short)
    prepared = chosen.prepare(graph.x, **graph.tensors())
    optimiser = torch.optim.Adam(chosen.parameters(), lr=0.005)
    for _ in range(400):
        logits = chosen(prepared)
        if torch.equal(logits.argmax(1), labels):
            return
        optimiser.zero_grad()
        F.cross_entropy(logits, labels).backward()
        optimiser.step()
    pytest.fail("the labels were not learned")


@pytest.mark.parametrize("rank_gradient", ["pairwise", "taylor"])
def test_gradients_of_positions_change_the_order(rank_gradient: Any) -> None:
    graph = random_graph(1, 30, 60, features=6, dtype=torch.float32)
    labels = torch.randint(3, (30,), generator=torch.Generator().manual_seed(1))
    model = ExpandedCoCN(6, 16, 3, num_heads=2, kernel_size=3, rank_gradient=rank_gradient)
    prepared = model.prepare(graph.x, **graph.tensors())
    before = model.rank_nodes(prepared).order_BHN
    assert model.positions is not None
    # Nothing but the positions moves, so that it is their gradient that changes the order.
    optimiser = torch.optim.Adam(model.positions.parameters(), lr=0.01)
    for _ in range(10):
        optimiser.zero_grad()
        F.cross_entropy(model(prepared), labels).backward()
        assert all(bool(parameter.grad.any()) for parameter in model.positions.parameters())  # type: ignore[union-attr]
        optimiser.step()
    assert not torch.equal(model.rank_nodes(prepared).order_BHN, before)


class Crowd:
    """Sets of nodes of which a quarter are witnesses: all of a set observe one bit, each through much noise.

    The others have clear bits of their own. A witness can only be sure by listening to its like, and a window
    holds many of them only where the order brings them together. Twelve columns of noise keep a random order
    from doing so. The gradient of a rank says whether a louder node would lower the loss, so the order parts
    those that are sure from those that are not, and that is what brings the witnesses together.
    """

    NUM_FEATURES = 14

    def __init__(self, seed: int, sets: int, nodes: int = 40) -> None:
        generator = torch.Generator().manual_seed(seed)
        witness = torch.rand(sets, nodes, 1, generator=generator) < 0.25
        common = torch.randint(2, (sets, 1, 1), generator=generator).expand(sets, nodes, 1)
        own = torch.randint(2, (sets, nodes, 1), generator=generator)
        bits = torch.where(witness, common, own)
        observed = 2.0 * bits - 1 + 1.5 * witness * torch.randn(sets, nodes, 1, generator=generator)
        noise = torch.randn(sets, nodes, 12, generator=generator)
        self.x = torch.cat([2.0 * witness - 1, observed, noise], dim=-1).flatten(0, 1)
        self.labels = bits.flatten()
        self.witness = witness.flatten()
        self.batch = torch.arange(sets).repeat_interleave(nodes)

    def logits(self, model: CoCN) -> Tensor:
        return model(self.x, NO_EDGES, batch=self.batch)


def train_on_crowds(
    seed: int,
    optimiser_type: Any,
    *,
    frozen: bool = False,
    nodes: int = 40,
    clip: float = 0.0,
    **settings: Any,
) -> float:
    """Share of witnesses of new sets that are right after training."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {"num_heads": 1, "kernel_size": 5, "unit_layers": 1, "pool_layers": 0}
    model = CoCN(
        Crowd.NUM_FEATURES, 16, 2, residual=True, structure_features=False, ties="input", **shape, **settings
    )
    assert model.positions is not None
    model.positions.requires_grad_(not frozen)
    optimiser = optimiser_type([p for p in model.parameters() if p.requires_grad])
    for step in range(120):
        crowd = Crowd(1000 * seed + step, sets=480 // nodes, nodes=nodes)
        optimiser.zero_grad()
        F.cross_entropy(crowd.logits(model), crowd.labels).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
    crowd = Crowd(10**6 + seed, sets=9600 // nodes, nodes=nodes)
    with torch.no_grad():
        right = crowd.logits(model.eval()).argmax(1) == crowd.labels
    return float(right[crowd.witness].float().mean())


@pytest.mark.parametrize(("tau", "seed"), [(3.0, 0), (None, 1)])
def test_learning_the_order_beats_a_frozen_random_one(tau: float | None, seed: int) -> None:
    """Both start with the same random order; over five seeds the smallest margin seen was 0.1."""

    def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.015)

    learned = train_on_crowds(seed, adam, tau=tau)
    frozen = train_on_crowds(seed, adam, tau=tau, frozen=True)
    assert learned > frozen + 0.05, (learned, frozen)


def test_normalised_taylor_gradients_train_better_under_clipping() -> None:
    """The stated choice: as it is, the gradient of the positions takes all of the norm that is left."""

    def descent(parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    shared: dict[str, Any] = {"tau": None, "rank_gradient": "taylor", "nodes": 240, "clip": 1.0}
    normalised = train_on_crowds(0, descent, normalise_rank_gradient=True, **shared)
    plain = train_on_crowds(0, descent, normalise_rank_gradient=False, **shared)
    assert normalised > plain + 0.02, (normalised, plain)
