"""A training step of Sparse CoCN on a whole large graph: against its past, the roofline and its scaling."""

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import cocn
from pipeline.benchmarks.train import count_flops
from pipeline.ingest.generators import power_law
from pipeline.runtime.allocator import allocator_environment
from pipeline.runtime.memory import peak_memory
from pipeline.runtime.progress import progress

_SMALL_NODES = 50_000
_HEADS, _CHANNELS, _CLASSES = 4, 32, 4
#: Side of the square product that measures how fast this machine multiplies.
_SIDE = 1536


@dataclass(frozen=True)
class FullGraphCost:
    """Processor time of one thread, medians of interleaved rounds; four heads, 32 channels."""

    nodes: int
    step_seconds: float
    speedup: float
    """Time of a step before (the C library's allocator, torch's sparse product) over that of a step now."""
    gemm_share: float
    """Operations per second of the step's matrix products over those of one large product."""
    system_time_share: float
    """Share of a step spent in the kernel, mostly on page faults."""
    system_time_share_before: float
    peak_memory_ratio: float
    """Peak memory now over before."""
    growth: float
    """Exponent of the step time from 50,000 nodes on; 1 is linear."""
    gigabytes_per_second: float
    """Bytes of all tensors that a layer must at least read or write, over the time of the step."""


@dataclass(frozen=True)
class StepTime:
    """One step as measured by the process that took it."""

    seconds: float
    system_seconds: float
    product_seconds: float
    """One large product right afterwards."""
    peak_bytes: int


def run(nodes: int = 421_961, *, small_nodes: int = _SMALL_NODES, rounds: int = 3) -> FullGraphCost:
    """Measure steps of three processes alternately: now, before, and now on the small graph.

    Args:
        nodes: Size of the power-law graph.
        small_nodes: Size from which scaling is measured.
        rounds: Rounds; each process first takes a step that does not count.
    """
    with tempfile.TemporaryDirectory() as directory, progress("full graph", 3 * (rounds + 1), "steps") as bar:
        large, small = (_write_graph(Path(directory) / f"{size}.npz", size) for size in (nodes, small_nodes))
        with (
            _stepper(large, "now") as now,
            _stepper(large, "before") as before,
            _stepper(small, "now") as tiny,
        ):
            times: dict[str, list[StepTime]] = {"now": [], "before": [], "tiny": []}
            for _ in range(rounds + 1):
                for name, process in (("now", now), ("before", before), ("tiny", tiny)):
                    times[name].append(_ask_step(process))
                    bar.advance()
            operations = _ask(now, "flops")
    after, earlier = times["now"][1:], times["before"][1:]
    step = statistics.median(each.seconds for each in after)
    tiny_step = statistics.median(each.seconds for each in times["tiny"][1:])
    product = statistics.median(each.product_seconds for each in after)
    return FullGraphCost(
        nodes=nodes,
        step_seconds=step,
        speedup=statistics.median(b.seconds / a.seconds for a, b in zip(after, earlier, strict=True)),
        gemm_share=float(operations) / step / (2 * _SIDE**3 / product),
        system_time_share=statistics.median(each.system_seconds / each.seconds for each in after),
        system_time_share_before=statistics.median(each.system_seconds / each.seconds for each in earlier),
        peak_memory_ratio=after[-1].peak_bytes / earlier[-1].peak_bytes,
        growth=math.log(step / tiny_step) / math.log(nodes / small_nodes),
        gigabytes_per_second=_least_bytes(nodes) / step / 1e9,
    )


def _least_bytes(nodes: int) -> float:
    """Every layer reads and writes [N, H, C] once forward, and reads two and writes one of them backward."""
    layers = 4 + 2 / 5  # two unit layers down, two up, and the pooling layer's two at a fifth of the places
    return 5 * layers * nodes * _HEADS * _CHANNELS * 4


def _write_graph(path: Path, nodes: int) -> Path:
    graph = power_law(nodes)
    sources = np.repeat(np.arange(nodes), graph.csr.degrees())
    edges = np.stack([sources, graph.csr.indices.astype(np.int64)])
    np.savez(path, edges=edges, features=graph.features)
    return path


@contextmanager
def _stepper(graph: Path, kind: str) -> "Iterator[subprocess.Popen[str]]":
    """A process that takes a step for each line it reads."""
    command = [sys.executable, "-W", "ignore", "-m", "pipeline.benchmarks.fullgraph", str(graph), kind]
    environment = {**os.environ, **(allocator_environment() if kind == "now" else {})}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _ask(process: "subprocess.Popen[str]", word: str) -> str:
    if process.stdin is None or process.stdout is None:
        raise ValueError("Expected a process with pipes (got none)")
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return process.stdout.readline()


def _ask_step(process: "subprocess.Popen[str]") -> StepTime:
    return StepTime(**json.loads(_ask(process, "step")))


def _serve(graph: Path, kind: str) -> Iterator[str]:
    """Respond to the words on standard input."""
    if kind == "before":
        from cocn import sparse_rows

        sparse_rows.has_compiler = lambda: False  # type: ignore[assignment]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    arrays = np.load(graph)
    features = torch.from_numpy(arrays["features"])
    model = cocn.SparseCoCN(features.size(1), _CHANNELS, _CLASSES, num_heads=_HEADS)
    prepared = model.prepare(features, edge_index=torch.from_numpy(arrays["edges"]))
    one, two = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(prepared).square().mean().backward()

    for word in sys.stdin:
        if word.strip() == "flops":
            yield str(count_flops(step))
            continue
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
        step()
        seconds, after = time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF)
        start = time.process_time()
        torch.mm(one, two)
        found = StepTime(
            seconds=seconds,
            system_seconds=after.ru_stime - before.ru_stime,
            product_seconds=time.process_time() - start,
            peak_bytes=peak_memory(),
        )
        yield json.dumps(asdict(found))


if __name__ == "__main__":
    for answer in _serve(Path(sys.argv[1]), sys.argv[2]):
        print(answer, flush=True)  # noqa: T201
