"""`cocn bench expanded`: a training step of Expanded CoCN against the dense equations, and how it scales."""

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import cocn
from cocn import GraphBatch, reference
from pipeline.runtime.memory import peak_memory
from pipeline.runtime.progress import progress

_FEATURES = 16
_CLASSES = 5
_ROUNDS = 3
_FAST_STEPS_PER_ROUND = 3
_GROWTH_DEGREE = 8
_Forward = Callable[[cocn.CoCN, GraphBatch], Tensor]


@dataclass(frozen=True)
class ExpandedBenchmark:
    """8 heads, 64 channels, k=5, L1=2, L2=2, node-level; forward, backward and optimiser; alternating."""

    nodes: int
    edges: int
    """Undirected."""
    step_seconds: float
    dense_step_seconds: float
    speedup_vs_dense: float
    """Median over rounds of the time of a dense step over that of a fast one."""
    max_abs_error: float
    """Largest difference of outputs and gradients from the dense equations, in float32; gradients relative to
    the largest entry of their tensor."""
    growth_nodes: tuple[int, int]
    growth: float
    """Exponent of the step time between the two sizes; 1 is linear."""
    peak_memory_ratio: float
    """Memory that a dense step adds to a fresh process over what a fast one adds."""


def run(
    nodes: int = 2277, edges: int = 31_371, growth_nodes: tuple[int, int] = (10_000, 160_000), seed: int = 0
) -> ExpandedBenchmark:
    """Measure.

    Args:
        nodes: nodes of the graph that both run on.
        edges: its number of undirected edges.
        growth_nodes: sizes between which scaling is measured, at degree 8.
        seed: seed of graphs and parameters.
    """
    model, graph = _make_case(nodes, edges, seed)
    with progress("expanded", _ROUNDS + 4, "rounds") as bar:
        error = _compare(model, graph)
        bar.advance()
        fast, dense = [], []
        for _ in range(_ROUNDS):
            dense.append(_time_step(model, graph, reference.forward))
            times = [_time_step(model, graph, _forward_fast) for _ in range(_FAST_STEPS_PER_ROUND)]
            fast.append(statistics.median(times))
            bar.advance()
        ratio = _measure_memory("dense", nodes, edges, seed) / _measure_memory("fast", nodes, edges, seed)
        bar.advance()
        growth = _measure_growth(growth_nodes, seed)
        bar.advance(2)
    return ExpandedBenchmark(
        nodes=nodes,
        edges=edges,
        step_seconds=statistics.median(fast),
        dense_step_seconds=statistics.median(dense),
        speedup_vs_dense=statistics.median(d / f for d, f in zip(dense, fast, strict=True)),
        max_abs_error=error,
        growth_nodes=growth_nodes,
        growth=growth,
        peak_memory_ratio=ratio,
    )


def _make_case(nodes: int, edges: int, seed: int) -> tuple[cocn.CoCN, GraphBatch]:
    """The reference configuration on a random graph with about this many undirected edges."""
    torch.manual_seed(seed)
    pairs = torch.randint(nodes, (2, edges))
    pairs = pairs[:, pairs[0] != pairs[1]]
    edge_index = torch.cat([pairs, pairs.flip(0)], dim=1).unique(dim=1)
    model = cocn.ExpandedCoCN(
        _FEATURES,
        64,
        _CLASSES,
        num_heads=8,
        kernel_size=5,
        unit_layers=2,
        pool_layers=2,
        rank_gradient="taylor",
    )
    return model, model.prepare(torch.randn(nodes, _FEATURES), edge_index=edge_index)


def _forward_fast(model: cocn.CoCN, graph: GraphBatch) -> Tensor:
    """The network as users run it."""
    out: Tensor = model(graph)
    return out


def _time_step(model: cocn.CoCN, graph: GraphBatch, forward: _Forward) -> float:
    """Seconds of one training step."""
    optimiser = torch.optim.AdamW(model.parameters(), 1e-6)
    start = time.perf_counter()
    forward(model, graph).square().mean().backward()
    optimiser.step()
    seconds = time.perf_counter() - start
    optimiser.zero_grad(set_to_none=True)
    return seconds


def _compare(model: cocn.CoCN, graph: GraphBatch) -> float:
    """Largest difference between the fast and the dense network."""
    outputs, gradients = [], []
    for forward in (_forward_fast, reference.forward):
        model.zero_grad(set_to_none=True)
        out = forward(model, graph)
        out.square().mean().backward()
        outputs.append(out.detach())
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    largest = float((outputs[0] - outputs[1]).abs().max())
    for one, other in zip(*gradients, strict=True):
        if other.numel():
            scale = float(other.abs().max().clamp(min=1e-6))
            largest = max(largest, float((one - other).abs().max()) / max(scale, 1.0))
    return largest


def _measure_growth(sizes: tuple[int, int], seed: int) -> float:
    """Exponent of the step time between two sizes, measured alternately; the median over rounds."""
    cases = [_make_case(nodes, nodes * _GROWTH_DEGREE // 2, seed) for nodes in sizes]
    for case in cases:
        _time_step(*case, _forward_fast)
    ratios = []
    for _ in range(_ROUNDS):
        small = statistics.median(_time_step(*cases[0], _forward_fast) for _ in range(_FAST_STEPS_PER_ROUND))
        ratios.append(_time_step(*cases[1], _forward_fast) / small)
    return math.log(statistics.median(ratios)) / math.log(sizes[1] / sizes[0])


def _measure_memory(kind: str, nodes: int, edges: int, seed: int) -> float:
    """Bytes that one step adds to the peak of a separate process."""
    arguments = [kind, *(str(number) for number in (nodes, edges, seed))]
    command = [sys.executable, "-W", "ignore", "-m", "pipeline.benchmarks.expanded", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def _added_memory(kind: str, nodes: int, edges: int, seed: int) -> int:
    """Run one step here and return the growth of this process's peak, in bytes."""
    model, graph = _make_case(nodes, edges, seed)
    before = peak_memory()
    _time_step(model, graph, _forward_fast if kind == "fast" else reference.forward)
    return max(peak_memory() - before, 1)


if __name__ == "__main__":
    print(_added_memory(sys.argv[1], *(int(word) for word in sys.argv[2:])))  # noqa: T201
