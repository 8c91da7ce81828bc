"""What a training step costs: its parts, scaling with the graph, two workers, re-sorting every batch."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.utils.flop_counter import FlopCounterMode

from pipeline.benchmarks.resorting import ResortingBaseline
from pipeline.benchmarks.segments import make_store, timed
from pipeline.config.loading import Config, load_config
from pipeline.models.networks import Inputs, build_model
from pipeline.models.parallel import distribute
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_server import free_port
from pipeline.training.checkpoint import TrainState
from pipeline.training.feeds import SegmentFeed
from pipeline.training.optimisation import (
    agree_on_step,
    check_finite,
    set_learning_rate,
    step_seed,
    take_step,
)

_SMALL_NODES = 50_000
#: Eight heads, segments of eight, 64 channels, kernel 5, four unit layers, one pooling layer, 12 features.
_REFERENCE: dict[str, object] = {
    "segments.length": 8,
    "model.heads": 8,
    "model.hidden_channels": 64,
    "model.kernel_size": 5,
    "model.unit_layers": 4,
    "model.pool_layers": 1,
    "model.dropout": 0.0,
    "model.propagated_features": 0,
    "train.batch_size": 1000,
}


@dataclass(frozen=True)
class TrainCost:
    """Times on one thread per worker, medians of interleaved rounds."""

    nodes: int
    step_seconds: float
    """A step of the loop, from one batch to the next."""
    data_share: float
    """Share of it spent outside forward, backward and optimiser."""
    growth_vs_50k: float
    """Step time over that on 50,000 nodes."""
    speedup_2_workers: float
    """Rows per second of two single-thread workers over those of one, at the same global batch."""
    full_resort_ratio: float
    """Step time of a baseline that ranks, sorts and segments the whole graph in every batch, over ours."""
    rows_per_second: float
    resort_step_seconds: float
    gemm_share: float
    """Operations per second of the step's matrix products, over those of one large product."""


def run(nodes: int = 421_961, *, small_nodes: int = _SMALL_NODES, rounds: int = 9) -> TrainCost:
    """Measure on power-law graphs with as many edges per node as genius has.

    Args:
        nodes: Size of the graph.
        small_nodes: Size from which scaling is measured.
        rounds: Rounds of each measurement; the baseline runs half of them.
    """
    with _one_thread(), tempfile.TemporaryDirectory() as directory:
        large, small = (make_store(Path(directory) / f"{size}", size) for size in (nodes, small_nodes))
        loops = [_Loop(store) for store in (large, small)]
        for _ in range(rounds + 1):
            for loop in loops:
                loop.step()
        step = loops[0].step_seconds()
        speedup = _time_two_workers(large, rounds)
        resort, resort_ratio = _time_resorting(large, loops[0], max(rounds // 2, 1))
        share = _time_products(loops[0], rounds)
    return TrainCost(
        nodes=nodes,
        step_seconds=step,
        data_share=loops[0].data_share(),
        growth_vs_50k=step / loops[1].step_seconds(),
        speedup_2_workers=speedup,
        full_resort_ratio=resort_ratio,
        rows_per_second=loops[0].rows / step,
        resort_step_seconds=resort,
        gemm_share=share,
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread while the block runs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def reference_config(**settings: object) -> Config:
    """The reference configuration; settings by dotted key, with `__` for the dot."""
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return load_config(None, {**_REFERENCE, **given})


class _Loop:
    """The training loop, one step at a time, with a clock around its parts."""

    def __init__(self, store: GraphStore, rank: int = 0, world_size: int = 1) -> None:
        self._config = reference_config()
        self._rank, self._world_size = rank, world_size
        # One rank of two may step while the other waits.
        self._shares_loss = world_size > 1 or not dist.is_initialized()
        torch.manual_seed(0)
        model = build_model(self._config.model, self._config.segments, Inputs.of(store, self._config))
        device = torch.device("cpu")
        self.model = model
        self.feed = SegmentFeed(store, self._config, model, rank, world_size, device)
        self.network = distribute(model, self._config.model, rank, world_size)
        self._optimiser = torch.optim.AdamW(model.parameters())
        self._state = TrainState()
        self._shares = self.feed.shares()
        self.rows = 0
        self._whole: list[float] = []
        self._computing: list[float] = []

    def step(self) -> None:
        """What the loop does between two batches."""
        settings = self._config.train
        start = time.perf_counter()
        share = next(self._shares, None)
        if share is None:
            self.feed.start_epoch(self._state.epoch + 1)
            self._state = self._state.after_epoch(None, 0)
            self._shares = self.feed.shares()
            share = next(self._shares)
        set_learning_rate(self._optimiser, self._config, self._state.step, 10**6)
        torch.manual_seed(step_seed(0, self._state.step, self._rank))
        computing = time.perf_counter()
        loss = self.feed.losses(self.network, share, None) / share.rows
        take_step(loss, self.model, self._optimiser, settings.clip, self._world_size)
        computed = time.perf_counter()
        total = agree_on_step(loss, False)[0] if self._shares_loss else float(loss.detach())
        check_finite(total, self._state, share, self._optimiser)
        self._state = self._state.after_step(total, share.rows, self.feed.cursor())
        self.rows = share.rows
        self._whole.append(time.perf_counter() - start)
        self._computing.append(computed - computing)

    def step_seconds(self) -> float:
        """Median time of a step; the first one is a warm-up."""
        return statistics.median(self._whole[1:])

    def data_share(self) -> float:
        """Median share of a step that is not forward, backward or optimiser."""
        parts = zip(self._whole[1:], self._computing[1:], strict=True)
        return statistics.median(1 - computing / whole for whole, computing in parts)


def _time_two_workers(store: GraphStore, rounds: int) -> float:
    """Median over rounds of the throughput of two workers, over that of one of them alone just before."""
    # Otherwise torch warns in every process that one of our checks costs time.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "speedup"
        multiprocessing.spawn(_take_turns, (store.path, rounds, free_port(), result), nprocs=2)  # type: ignore[attr-defined,no-untyped-call]
        return float(result.read_text())


def _take_turns(rank: int, path: Path, rounds: int, port: int, result: Path) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    store = open_store(path)
    alone, together = _Loop(store), _Loop(store, rank, 2)
    ratios = []
    for _ in range(rounds + 1):
        one = _until_all_are_done(alone.step if rank == 0 else lambda: None)
        two = _until_all_are_done(together.step)
        ratios.append(one / two)
    if rank == 0:
        result.write_text(str(statistics.median(ratios[1:])))
    dist.destroy_process_group()


def _until_all_are_done(work: Callable[[], None]) -> float:
    dist.barrier()
    start = time.perf_counter()
    work()
    dist.barrier()
    return time.perf_counter() - start


def _time_resorting(store: GraphStore, loop: _Loop, rounds: int) -> tuple[float, float]:
    """Median time of a step of the baseline, and median of its ratio to a step of ours just before."""
    baseline = ResortingBaseline(store, reference_config(model__positions="explicit"))
    baseline.step()
    pairs = [(timed(loop.step), timed(baseline.step)) for _ in range(rounds)]
    return statistics.median(slow for _, slow in pairs), statistics.median(
        slow / ours for ours, slow in pairs
    )


def count_flops(step: Callable[[], None]) -> float:
    """Floating-point operations of the matrix products of a step."""
    aten = torch.ops.aten
    with FlopCounterMode(display=False, custom_mapping={aten.addmm_: _addmm_flops}) as counter:
        step()
    return float(counter.get_total_flops())


def _addmm_flops(
    total: tuple[int, ...], one: tuple[int, ...], two: tuple[int, ...], *_: object, **__: object
) -> int:
    return 2 * one[0] * one[1] * two[1]


def _time_products(loop: _Loop, rounds: int, side: int = 1536) -> float:
    """Median over rounds of the rate of a step's products, over that of one large product just after."""
    operations = count_flops(loop.step)
    one, two = torch.randn(side, side), torch.randn(side, side)
    shares = []
    for _ in range(rounds):
        step, product = _thread_seconds(loop.step), _thread_seconds(lambda: torch.mm(one, two))
        shares.append(operations / step / (2 * side**3 / product))
    return statistics.median(shares)


def _thread_seconds(work: Callable[[], object]) -> float:
    """Seconds that this thread computed, independent of other load on the machine."""
    start = time.thread_time()
    work()
    return time.thread_time() - start
