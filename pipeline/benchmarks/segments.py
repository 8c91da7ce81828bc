"""What segments cost: building them compared with sorting, streaming them compared with training on them."""

import dataclasses
import functools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import BaseModel

from cocn import SegmentBatch, SegmentCoCN
from pipeline.config.loading import Config, ModelConfig, PositionConfig, SegmentConfig
from pipeline.ingest.generators import power_law
from pipeline.orders.sequences import sequence
from pipeline.segments.loader import SegmentLoader
from pipeline.segments.stage import open_segments, write_segments
from pipeline.segments.windows import build_segments
from pipeline.storage.files import list_column
from pipeline.store.access import create_store, open_store
from pipeline.store.arrays import GraphArrays
from pipeline.store.graph_store import GraphStore, PositionSummary

_HEADS = 8
_LENGTH = 8
_CHANNELS = 64
_FEATURES = 12
_CLASSES = 2
_BATCH_ROWS = 1000
_ROUNDS = 5
_MODEL_STEPS = 5
_SMALL_NODES = 100_000
_LARGE_NODES = 1_000_000


@dataclass(frozen=True)
class SegmentsCost:
    """Times on one thread, medians of interleaved rounds.

    Attributes:
        build_seconds_all_heads: Sort, break ties, walk the edges and cut all n windows of every head.
        build_vs_sort: The same, over the time torch takes to sort the position columns.
        rows_per_second: Records that the loader alone delivers from shards, with features gathered.
        loader_vs_model: The same, over the records that training steps of Segment CoCN take.
        resident_growth: Growth of a streaming epoch's peak anonymous memory from 100 K to 1 M nodes.
    """

    nodes: int
    sort_seconds_all_heads: float
    build_seconds_all_heads: float
    build_vs_sort: float
    resequence_seconds_all_heads: float
    """Without cutting the windows, which in-memory sources do when they are read."""
    rows_per_second: float
    model_rows_per_second: float
    loader_vs_model: float
    resident_bytes_small: int
    resident_bytes_large: int
    resident_growth: float


class _Synthetic(BaseModel):
    """Parameters of a graph generated for measuring."""

    nodes: int
    seed: int = 0


def run(
    nodes: int = 421_961, small_nodes: int = _SMALL_NODES, large_nodes: int = _LARGE_NODES
) -> SegmentsCost:
    """Measure on power-law graphs with as many edges per node as genius has.

    Args:
        nodes: Size of the graph that is built, streamed and trained on.
        small_nodes: Sizes between which the growth of resident memory is measured.
        large_nodes: The larger of them.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sort, build, resequence = _time_building(nodes)
        with tempfile.TemporaryDirectory() as directory:
            rows, model_rows = _time_streaming(Path(directory), nodes)
            small = peak_of_streaming(Path(directory), small_nodes)
            large = peak_of_streaming(Path(directory), large_nodes)
    finally:
        torch.set_num_threads(threads)
    return SegmentsCost(
        nodes=nodes,
        sort_seconds_all_heads=sort,
        build_seconds_all_heads=build,
        build_vs_sort=build / sort,
        resequence_seconds_all_heads=resequence,
        rows_per_second=rows,
        model_rows_per_second=model_rows,
        loader_vs_model=rows / model_rows,
        resident_bytes_small=small,
        resident_bytes_large=large,
        resident_growth=large / small - 1,
    )


def _time_building(nodes: int) -> tuple[float, float, float]:
    """Seconds of sorting, of building every window, and of building without cutting the windows."""
    graph, positions = _make_graph(nodes), _random_positions(nodes)
    columns = torch.from_numpy(positions)
    shards = np.array_split(np.arange(nodes), -(-nodes // SegmentConfig().shard_rows))

    def resequence() -> None:
        build_segments(sequence(positions, graph.csr), graph.csr, _LENGTH)

    def build() -> None:
        segments = build_segments(sequence(positions, graph.csr), graph.csr, _LENGTH)
        for shard in shards:
            segments.windows(shard)

    def sort() -> None:
        for head in range(_HEADS):
            torch.sort(columns[:, head])

    medians = _interleave([sort, build, resequence])
    return medians[0], medians[1], medians[2]


def _time_streaming(directory: Path, nodes: int) -> tuple[float, float]:
    """Records per second of the loader alone, and of training steps alone."""
    loader = SegmentLoader(open_segments(make_store(directory / "store", nodes), 0, "train"), _BATCH_ROWS)
    batches = list(loader.take(_MODEL_STEPS))
    rates = []
    for epoch in range(1, 1 + _ROUNDS):
        loader.set_epoch(epoch)
        start = time.perf_counter()
        for _ in loader:
            pass
        rates.append(loader.plan.num_rows / (time.perf_counter() - start))
    return statistics.median(rates), _time_model(batches)


def _time_model(batches: list[SegmentBatch]) -> float:
    """Records per second of training steps of the reference model."""
    torch.manual_seed(0)
    model = SegmentCoCN(
        _FEATURES,
        _CHANNELS,
        _CLASSES,
        segment_length=_LENGTH,
        num_heads=_HEADS,
        kernel_size=5,
        unit_layers=4,
        pool_layers=1,
    )
    optimiser = torch.optim.AdamW(model.parameters())

    def step(batch: SegmentBatch) -> None:
        optimiser.zero_grad()
        loss: torch.Tensor = F.cross_entropy(model(batch), torch.as_tensor(batch.y))
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    step(batches[0])
    seconds = statistics.median(timed(functools.partial(step, batch)) for batch in batches)
    return batches[0].num_records / seconds


def peak_of_streaming(directory: Path, nodes: int) -> int:
    """Peak anonymous memory, in bytes, of a fresh process that streams one epoch of a store."""
    store = make_store(directory / f"store-{nodes}", nodes)
    command = [sys.executable, "-m", "pipeline.benchmarks.segments", str(store.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=_source_root())
    return int(json.loads(done.stdout.splitlines()[-1])["peak_bytes"])


def stream(path: Path) -> int:
    """Read one epoch; returns the peak of this process's anonymous memory."""
    loader = SegmentLoader(open_segments(open_store(path), 0, "train"), _BATCH_ROWS)
    return max(_anonymous_bytes() for _ in loader)


def _anonymous_bytes() -> int:
    """Resident memory of this process that is not backed by a file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def make_store(path: Path, nodes: int, *, all_train: bool = True) -> GraphStore:
    """A store of a synthetic graph with segments; all nodes, or a random half of them, are training nodes."""
    store = create_store(path, _make_graph(nodes, all_train), _Synthetic(nodes=nodes))
    with store.begin("positions", _Synthetic(nodes=nodes)) as stage:
        stage.write_table("columns.arrow", pa.table({"columns": list_column(_random_positions(nodes))}))
        stage.commit(PositionSummary(columns=tuple(f"random {head}" for head in range(_HEADS))))
    config = Config(
        positions=PositionConfig(order="profile"),
        model=ModelConfig(heads=_HEADS),
        segments=SegmentConfig(length=_LENGTH),
    )
    write_segments(store, config, parallel=False)
    return store


def _random_positions(nodes: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal((nodes, _HEADS)).astype(np.float32)


def _make_graph(nodes: int, all_train: bool = True) -> GraphArrays:
    """A power-law graph with genius' density."""
    graph = power_law(nodes, num_features=_FEATURES, num_classes=_CLASSES)
    if not all_train:
        return graph
    return dataclasses.replace(graph, splits=np.zeros((1, nodes), dtype=np.int8))


def _interleave(functions: list[Callable[[], None]]) -> list[float]:
    """Median seconds of each function, measured alternately so that other load affects all alike."""
    for function in functions:
        function()
    rounds = [[timed(function) for function in functions] for _ in range(_ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _source_root() -> Path:
    return Path(__file__).resolve().parents[2]


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"peak_bytes": stream(Path(sys.argv[1]))}) + "\n")
