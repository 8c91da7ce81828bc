"""Approximate positions r_A: one learned real number per node and head, by which the heads order the nodes.

Implements: eq:approximate-pos, eq:approximate-ex-pos-implementation, eq:approximate-im-pos-implementation

Legend: N nodes, D features, H heads, K hops.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from cocn.propagation import NormalisedAdjacency

Propagation = Literal["after", "before"]

#: Scale of the shortest-path distance in eq:approximate-im-pos-implementation.
DISTANCE_SCALE = 0.1


class PositionRegression(nn.Module):
    r"""Regress the positions of all heads.

    .. math:: \mathbf{r}_A = \tilde{\mathbf{A}}^t\,\texttt{MLP}(\mathbf{X}) \quad\text{(explicit)},\qquad
              \mathbf{r}_A = \texttt{MLP}(\mathbf{z}) \quad\text{(implicit)}

    where z holds the pre-computed structural positions of a node: r_A of
    eq:approximate-im-pos-implementation, its distance profile, and any other columns of the store. One scalar
    would give the heads only two orders, up and down; the whole profile lets h heads learn h orders.

    Deviation: the paper's MLP ends in a ReLU, which would tie every node it clips; ours does not.

    Args:
        in_channels: features of a node, or columns of z.
        num_heads: H.
        hidden_channels: width of the MLP.
        smoothness: t, the power of Ã; 0 for implicit positions.
        propagation: ``after`` the MLP as in the paper, or ``before`` it, MLP(Ã^t X), so that Ã^t X can be
            computed once and positions need only the rows of a batch.
    """

    def __init__(
        self,
        in_channels: int,
        num_heads: int,
        hidden_channels: int,
        smoothness: int = 0,
        propagation: Propagation = "after",
    ) -> None:
        super().__init__()
        self.smoothness = smoothness
        self.propagation = propagation
        self.hidden = nn.Linear(in_channels, hidden_channels)
        self.out = nn.Linear(hidden_channels, num_heads)

    def reset_parameters(self) -> None:
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x_ND: Tensor, adjacency: NormalisedAdjacency | None = None) -> Tensor:
        """Returns [N, H]. Without an adjacency the rows of x are taken to be propagated already."""
        with torch.autocast(x_ND.device.type, enabled=False):
            x = x_ND.to(self.hidden.weight.dtype)
            if adjacency is not None and self.propagation == "before":
                x = adjacency.propagate(x, self.smoothness)
            positions: Tensor = self.out(torch.relu(self.hidden(x)))
            if adjacency is not None and self.propagation == "after":
                positions = adjacency.propagate(positions, self.smoothness)
            return positions

    def extra_repr(self) -> str:
        return f"smoothness={self.smoothness}, propagation={self.propagation!r}"


def structural_positions(edge_index: Tensor, num_nodes: int, truncate: int = 4) -> Tensor:
    """Implicit positions and distance profile of a small graph, [N, 1 + K]; large ones come from the store.

    Columns: r_A, then the share of nodes at 1…K hops. Pairs further apart count as K+1 hops.
    """
    hops = hop_distances(edge_index, num_nodes, truncate)
    position = implicit_positions(DISTANCE_SCALE * hops)
    profile = torch.stack([(hops == hop).double().mean(1) for hop in range(1, truncate + 1)], dim=1)
    return torch.cat([position[:, None], profile], dim=1)


def hop_distances(edge_index: Tensor, num_nodes: int, truncate: int) -> Tensor:
    """Dense hop counts, truncated at K+1, in both directions of every edge. For small graphs only."""
    adjacency = torch.zeros(num_nodes, num_nodes, device=edge_index.device)
    adjacency[edge_index[0], edge_index[1]] = 1
    adjacency[edge_index[1], edge_index[0]] = 1
    reached = torch.eye(num_nodes, device=edge_index.device)
    hops = torch.full((num_nodes, num_nodes), truncate + 1.0, dtype=torch.double, device=edge_index.device)
    hops.fill_diagonal_(0)
    for hop in range(1, truncate + 1):
        frontier = ((reached @ adjacency) > 0) & (reached == 0)
        hops[frontier] = hop
        reached = reached + frontier
    return hops


def implicit_positions(distance_NN: Tensor) -> Tensor:
    r"""Dense solution of the distance constraint on positions.

    .. math:: \Big(\sum_j \big(\tfrac{2}{n}d_{ij}-1\big)^2 - 1\Big) r_i
              + \sum_{j \ne i} \big(\tfrac{4}{n} d_{ij} - 2\big) r_j = \tfrac{2}{n} \sum_j d_{ij}^2

    Deviation: as printed, eq:approximate-im-pos-implementation has the solution n/2 for every node of every
    graph. The off-diagonal 4d/n − 2 with diagonal Σ_j (2d_ij/n − 1)² − 1 is the form that orders nodes.
    """
    num_nodes = distance_NN.size(0)
    if num_nodes < 2:
        return distance_NN.new_zeros(num_nodes)
    matrix = 4 * distance_NN / num_nodes - 2
    diagonal = ((2 * distance_NN / num_nodes - 1) ** 2).sum(1) - 1
    matrix = matrix - torch.diag(matrix.diagonal()) + torch.diag(diagonal)
    return torch.linalg.solve(matrix, 2 / num_nodes * (distance_NN**2).sum(1))
