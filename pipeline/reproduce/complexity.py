"""Time and memory of an epoch against the size of the graph, each case in a separate process.

Random graphs of mean degree 8. Full-graph models take one step per epoch; an epoch of Segment CoCN is as many
steps of 1,000 nodes as it takes to see all of them, extrapolated from a few. `dense` is the literal network
of `cocn/reference.py`, with its n×n matrices.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import JsonValue
from torch import Tensor

import cocn
from cocn import reference
from pipeline.orders.sequences import sequence
from pipeline.reproduce.records import Measurement, Records, Source
from pipeline.runtime.memory import peak_memory, reset_peak
from pipeline.runtime.provenance import SOURCE
from pipeline.segments.loader import SegmentLoader
from pipeline.segments.records import MemorySource, NodeTable
from pipeline.segments.windows import build_segments
from pipeline.store.cleaning import clean_edges

STUDY = "complexity"
SIZES: dict[str, tuple[int, ...]] = {
    "dense": (500, 1000, 2000),
    "expanded": (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000),
    "sparse": (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000),
    "segment": (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000),
}
_DEGREE = 8
_FEATURES = 16
_CLASSES = 4
_BATCH_NODES = 1000
_STEPS = 3
_Step = Callable[[], tuple[Tensor, Tensor]]
#: Eight heads, 64 channels, kernel 5, two unit layers, one pooling layer.
_SETTINGS: dict[str, Any] = {"num_heads": 8, "kernel_size": 5, "unit_layers": 2, "pool_layers": 1}


def run_cases(
    records: Records,
    command: str,
    *,
    models: Sequence[str] = tuple(SIZES),
    largest: int | None = None,
    again: bool = False,
) -> Iterator[Measurement]:
    """Measure what is not recorded yet, small graphs first."""
    cases = [(nodes, model) for model in models for nodes in SIZES[model]]
    for nodes, model in sorted(cases):
        if largest is not None and nodes > largest:
            continue
        case: dict[str, JsonValue] = {"model": model, "nodes": nodes}
        known = None if again else records.measurement(STUDY, case)
        if known is None:
            start = time.perf_counter()
            values = measure_apart(model, nodes)
            seconds = round(time.perf_counter() - start, 2)
            known = Measurement(
                study=STUDY, case=case, values=values, seconds=seconds, source=Source.here(command)
            )
            records.add(known)
        yield known


def measure_apart(model: str, nodes: int) -> dict[str, float]:
    """Measure in a fresh process, so that its memory is due to this case alone."""
    command = [sys.executable, "-W", "ignore", "-m", "pipeline.reproduce.complexity", model, str(nodes)]
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(model: str, nodes: int) -> dict[str, float]:
    """Seconds of an epoch, and the memory that the graph and training add to the process, in MiB."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    before = peak_memory()
    x = torch.randn(nodes, _FEATURES)
    edges = _random_edges(nodes)
    labels = torch.randint(_CLASSES, (nodes,))
    reset_peak()  # generating the graph takes more memory than it leaves behind
    steps = -(-nodes // _BATCH_NODES) if model == "segment" else 1
    start = time.perf_counter()
    step, network = _make_step(model, x, edges, labels)
    preparing = time.perf_counter() - start
    optimiser = torch.optim.AdamW(network.parameters())
    times = []
    for _ in range(_STEPS + 1):
        start = time.perf_counter()
        F.cross_entropy(*step()).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        times.append(time.perf_counter() - start)
    return {
        "epoch_seconds": steps * statistics.median(times[1:]),
        "prepare_seconds": preparing,
        "memory_mb": (peak_memory() - before) / 2**20,
    }


def _make_step(model: str, x: Tensor, edges: Tensor, labels: Tensor) -> tuple[_Step, cocn.CoCN]:
    """A function that gives the outputs of a step and their labels, and its network."""
    if model == "segment":
        segment = cocn.SegmentCoCN(_FEATURES, 64, _CLASSES, segment_length=8, **_SETTINGS)
        return _segment_step(segment, x, edges, labels), segment
    kind = {"dense": cocn.ExpandedCoCN, "expanded": cocn.ExpandedCoCN, "sparse": cocn.SparseCoCN}[model]
    network = kind(_FEATURES, 64, _CLASSES, **_SETTINGS)
    graph = network.prepare(x, edge_index=edges)
    run = reference.forward if model == "dense" else kind.__call__
    return lambda: (run(network, graph), labels), network


def _segment_step(network: cocn.SegmentCoCN, x: Tensor, edges: Tensor, labels: Tensor) -> _Step:
    """Batches of segments cut from random orders."""
    csr = clean_edges(edges[0].numpy(), edges[1].numpy(), x.size(0))[0]
    positions = torch.randn(x.size(0), network.num_heads).numpy()
    segments = build_segments(sequence(positions, csr), csr, network.segment_length)
    nodes = np.arange(x.size(0), dtype=np.int32)
    source = MemorySource(segments, nodes, labels.numpy(), NodeTable([x.numpy()]))
    loader = SegmentLoader(source, min(_BATCH_NODES, x.size(0)))
    batches = _endless(loader)

    def step() -> tuple[Tensor, Tensor]:
        batch = next(batches)
        return network(batch), torch.as_tensor(batch.y)

    return step


def _endless(loader: SegmentLoader) -> Iterator[cocn.SegmentBatch]:
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def _random_edges(nodes: int) -> Tensor:
    """Both directions of random pairs, mean degree 8."""
    pairs = torch.randint(nodes, (2, nodes * _DEGREE // 2))
    pairs = pairs[:, pairs[0] != pairs[1]]
    source, target = torch.cat([pairs, pairs.flip(0)], dim=1)
    keys = torch.unique(source * nodes + target)
    return torch.stack([keys // nodes, keys % nodes])


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))  # noqa: T201
