"""Information lost by the relaxed permutation: an autoencoder recovers the coordinates of a graph's nodes.

The encoder permutes the coordinates by learned positions, P̂ X; the decoder moves them back to their nodes
and maps them to coordinates again. A small τ blurs the sequence, and what is blurred is lost.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

import cocn
from cocn import GraphBatch
from cocn.permutation import gate, scatter_sequence
from pipeline.reproduce.records import Measurement, Records, Source

STUDY = "information-loss"
SHAPES = ("ring", "grid")
TAUS = (0.01, 0.1, 1.0, 10.0)
_NODES = 64
_HEADS = 8
_CHANNELS = 16
_SMOOTHNESS = 6
_EPOCHS = 10_000
_PATIENCE = 2000


@dataclass(frozen=True, eq=False)
class Recovery:
    """A graph, its coordinates, and an autoencoder's recovery of them.

    Shapes:
        coordinates, recovered: [n, 2]
        edges: [2, m]
    """

    coordinates: NDArray[np.float32]
    recovered: NDArray[np.float32]
    edges: NDArray[np.int64]
    distortion: float
    """Root mean squared error, over the standard deviation of the coordinates."""
    epochs: int


def make_shape(shape: str, nodes: int = _NODES) -> tuple[Tensor, Tensor]:
    """Coordinates [n, 2], standardised, and edges [2, m] of both directions."""
    side = math.isqrt(nodes)
    if shape == "ring":
        angle = torch.arange(nodes) * (2 * math.pi / nodes)
        points = torch.stack([angle.cos(), angle.sin()], dim=1)
        pairs = torch.stack([torch.arange(nodes), (torch.arange(nodes) + 1) % nodes])
    else:
        index = torch.arange(side * side).view(side, side)
        points = torch.stack(torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij"), -1).view(-1, 2).float()
        across = torch.stack([index[:, :-1].flatten(), index[:, 1:].flatten()])
        down = torch.stack([index[:-1].flatten(), index[1:].flatten()])
        pairs = torch.cat([across, down], dim=1)
    points = (points - points.mean(0)) / points.std(0, correction=0)
    return points, torch.cat([pairs, pairs.flip(0)], dim=1)


class _Autoencoder(nn.Module):
    """Permute, move back, map to coordinates."""

    def __init__(self, tau: float) -> None:
        super().__init__()
        self.permutation = cocn.VanillaCoCN(
            2, _CHANNELS, 2, num_heads=_HEADS, smoothness=_SMOOTHNESS, tau=tau, structure_features=False
        )
        self.encoder = nn.Linear(2, _CHANNELS)
        self.decoder = nn.Sequential(nn.Linear(_HEADS * _CHANNELS, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, graph: GraphBatch) -> Tensor:
        """Coordinates of the nodes, in the order of the input, [n, 2]."""
        network = self.permutation
        ranks = network.rank_nodes(graph)
        gates = gate(ranks.rank_grad_BHN, network.tau)
        encoded = graph.pad(self.encoder(network.graph_features(graph)))
        sequence = network.permute(encoded, ranks, gates, None)
        nodes = scatter_sequence(sequence, ranks.rank_BHN, graph.input_slots, gates)
        decoded: Tensor = self.decoder(nodes.flatten(1))
        return decoded


def recover(
    shape: str, tau: float, *, epochs: int = _EPOCHS, patience: int = _PATIENCE, seed: int = 0
) -> Recovery:
    """Train an autoencoder until its loss stops falling, and keep its best output."""
    torch.manual_seed(seed)
    points, edges = make_shape(shape)
    model = _Autoencoder(tau)
    graph = model.permutation.prepare(points, edge_index=edges)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    best, best_epoch, recovered = math.inf, 0, points
    for epoch in range(epochs):
        found = model(graph)
        loss = F.mse_loss(found, points)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if float(loss.detach()) < best:
            best, best_epoch, recovered = float(loss.detach()), epoch, found.detach()
        elif epoch - best_epoch >= patience:
            break
    return Recovery(points.numpy(), recovered.numpy(), edges.numpy(), math.sqrt(best), epoch + 1)


def run_cases(
    records: Records, command: str, *, shapes: Sequence[str] = SHAPES, epochs: int = _EPOCHS
) -> Iterator[tuple[Measurement, Recovery]]:
    """Every graph with every τ; each is trained, since the figure needs the recoveries."""
    for shape in shapes:
        for tau in TAUS:
            start = time.perf_counter()
            found = recover(shape, tau, epochs=epochs, patience=min(_PATIENCE, epochs))
            measured = Measurement(
                study=STUDY,
                case={"graph": shape, "tau": tau},
                values={"distortion": found.distortion, "epochs": found.epochs},
                seconds=round(time.perf_counter() - start, 2),
                source=Source.here(command),
            )
            records.add(measured)
            yield measured, found
