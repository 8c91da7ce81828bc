"""Random graphs, relabelled copies, and the comparison of a model with the dense equations."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from cocn import CoCN, reference


@dataclass(frozen=True)
class Graph:
    """One graph or, with `batch`, several."""

    x: Tensor | None
    edge_index: Tensor
    edge_attr: Tensor | None = None
    batch: Tensor | None = None
    num_nodes: int | None = None

    def tensors(self) -> dict[str, Tensor | int | None]:
        """Keyword arguments of a model and of `prepare`, in addition to x."""
        fields = ("edge_index", "edge_attr", "batch", "num_nodes")
        return {name: getattr(self, name) for name in fields}

    def relabel(self, order: Tensor) -> "Graph":
        """The same graph with node order[i] renamed to i, and its edges in another order."""
        new_name = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel()))
        shuffle = torch.arange(self.edge_index.size(1)).flip(0)
        return replace(
            self,
            x=None if self.x is None else self.x[order],
            edge_index=new_name[self.edge_index][:, shuffle],
            edge_attr=None if self.edge_attr is None else self.edge_attr[shuffle],
            batch=None if self.batch is None else self.batch[order],
        )


def random_graph(
    seed: int,
    num_nodes: int,
    num_edges: int,
    *,
    features: int = 3,
    channels: int = 0,
    directed: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Graph:
    """A graph without loops or repeated edges; `channels` random edge weights where positive."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(num_nodes))
    pairs = pairs[torch.randperm(pairs.size(0), generator=generator)[:num_edges]].t()
    if directed:
        swap = torch.rand(pairs.size(1), generator=generator) < 0.5
        edge_index = torch.where(swap, pairs.flip(0), pairs)
    else:
        edge_index = torch.cat([pairs, pairs.flip(0)], dim=1)
    edge_attr = None
    if channels:
        edge_attr = 0.5 + torch.rand(pairs.size(1), channels, generator=generator, dtype=dtype)
        edge_attr = edge_attr if directed else torch.cat([edge_attr, edge_attr])
    x = torch.randn(num_nodes, features, generator=generator, dtype=dtype) if features else None
    return Graph(x, edge_index, edge_attr, num_nodes=num_nodes)


def join(graphs: list[Graph]) -> Graph:
    """Several graphs as one batch."""
    sizes = [int(graph.num_nodes or 0) for graph in graphs]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    moved = [graph.edge_index + start for graph, start in zip(graphs, starts, strict=True)]
    features = [graph.x for graph in graphs if graph.x is not None]
    values = [graph.edge_attr for graph in graphs if graph.edge_attr is not None]
    return Graph(
        torch.cat(features) if features else None,
        torch.cat(moved, dim=1),
        torch.cat(values) if values else None,
        torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        sum(sizes),
    )


def error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference, in units of the largest expected value where that exceeds one."""
    if not expected.numel():
        return 0.0
    scale = max(1.0, float(expected.detach().abs().max()))
    return float((actual - expected).detach().abs().max()) / scale


def gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Gradients of a fixed random projection of the output."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    found = torch.autograd.grad((output * weights).sum(), inputs, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if grad is None else grad for x, grad in zip(inputs, found, strict=True)]


def assert_equals_oracle(model: CoCN, graph: Graph, tolerance: float, learn_edges: bool = False) -> None:
    """Values and gradients in all parameters and features equal those of the dense equations.

    Learned edge values have gradients too; an adjacency with values that are not learned may be symmetric,
    and then takes the half of the band that says it all.
    """
    model.eval()
    inputs = dict(model.named_parameters())
    tensors = graph.tensors()
    if graph.x is not None:
        inputs["x"] = graph.x.clone().requires_grad_()
    if learn_edges and graph.edge_attr is not None:
        inputs["edge_attr"] = tensors["edge_attr"] = graph.edge_attr.clone().requires_grad_()
    batch = model.prepare(inputs.get("x"), **tensors)
    actual, expected = model(batch), reference.forward(model, batch)
    assert error(actual, expected) < tolerance
    ours, theirs = (gradients(output, list(inputs.values())) for output in (actual, expected))
    for name, own, other in zip(inputs, ours, theirs, strict=True):
        assert error(own, other) < tolerance, name
