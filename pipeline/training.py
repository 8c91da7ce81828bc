"""Training: one loop for every model, in this process or under Ray Train on many."""

import hashlib
import json
import math
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import cocn
from pipeline.checkpoint import (
    TrainState,
    latest_checkpoint,
    load_optimiser,
    load_sequencer,
    load_weights,
    read_state,
    save_checkpoint,
    weights_digest,
)
from pipeline.config import Config
from pipeline.errors import UserError
from pipeline.evaluate import Evaluation, chosen_metric, evaluate
from pipeline.feeds import Feed, open_feed
from pipeline.modelling import Inputs, build_model
from pipeline.store import GraphStore
from pipeline.tracker import RunReference, Tracker

EPOCHS = "epochs.jsonl"
RESULT = "result.json"
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class TrainJob:
    """Everything a worker needs to train.

    Attributes:
        config: the resolved configuration.
        store: the graph store.
        directory: where checkpoints, epochs and the result go; the same job continues there.
        tracking: the MLflow run that rank 0 logs to.
    """

    config: Config
    store: Path
    directory: Path
    tracking: RunReference | None = None


class EpochRecord(BaseModel):
    """One line of `epochs.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    step: int
    train_loss: float
    val_loss: float
    val_metric: float
    rows_per_second: float
    learning_rate: float
    seconds: float


class TrainResult(BaseModel):
    """What a training came to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str
    dataset: str
    split: int
    seed: int
    metric: str
    test_metric: float
    best_val_metric: float
    best_epoch: int
    epochs: int
    train_seconds: float
    num_parameters: int
    peak_memory_mb: float
    test: dict[str, float]
    weights_sha256: str
    checkpoint: Path


def train_worker(
    job: TrainJob, rank: int = 0, world_size: int = 1, device: str | torch.device = "cpu"
) -> None:
    """Train, from the last checkpoint in the job's directory if there is one. Runs on every rank."""
    settings, device = job.config.train, torch.device(device)
    store = GraphStore.open(job.store)
    inputs = Inputs.of(store)
    torch.manual_seed(settings.seed)
    model = build_model(job.config.model, job.config.segments, inputs).to(device)
    feed = open_feed(store, job.config, model, rank, world_size, device)
    optimiser = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
    )
    state = resume(job, model, optimiser, feed)
    network = DistributedDataParallel(model, gradient_as_bucket_view=True) if world_size > 1 else model
    metric = chosen_metric(settings.metric, inputs.num_classes)
    class_weights = balance_classes(store, job.config, device) if settings.class_weights else None
    total_steps = settings.epochs * feed.steps_per_epoch
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")
    log = Log(job, state, rank)

    while state.epoch < settings.epochs and not state.finished:
        feed.start_epoch(state.epoch)
        epoch_start, rows_before = time.monotonic(), state.rows
        network.train()
        for share in feed.shares():
            set_learning_rate(optimiser, job.config, state.step, total_steps)
            # Dropout depends on the step and not on what ran before it, so a resumed run repeats it.
            torch.manual_seed(step_seed(settings.seed, state.step, rank))
            with autocast:
                loss = feed.losses(network, share, class_weights) / share.rows
            # DistributedDataParallel averages over ranks, and the loss is a sum over them.
            (loss * world_size).backward()
            if settings.clip:
                nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            total = check_finite(sum_over_ranks(loss.detach()), state, optimiser)
            state = state.model_copy(
                update={
                    "step": state.step + 1,
                    "loss_sum": state.loss_sum + total * share.rows,
                    "rows": state.rows + share.rows,
                }
            )
            if rank == 0 and log.seconds_since_save() > settings.checkpoint_seconds:
                state = log.save(state.model_copy(update={"cursor": feed.cursor()}), model, optimiser, feed)

        seconds = time.monotonic() - epoch_start
        validation = assess(feed, network, "val")
        check_finite(validation.loss, state, optimiser)
        improved = is_better(validation.metrics[metric], state.best_metric)
        record = EpochRecord(
            epoch=state.epoch,
            step=state.step,
            train_loss=state.loss_sum / max(state.rows, 1),
            val_loss=validation.loss,
            val_metric=validation.metrics[metric],
            rows_per_second=(state.rows - rows_before) / max(seconds, 1e-9),
            learning_rate=optimiser.param_groups[0]["lr"],
            seconds=log.seconds(),
        )
        state = end_epoch(state, record, improved, settings.patience)
        out_of_time = settings.time_budget is not None and log.seconds() > settings.time_budget
        state = state.model_copy(update={"finished": state.finished or agree(out_of_time)})
        if rank == 0:
            log.epoch(record)
            if improved:
                save_checkpoint(job.directory, "best", state, model.state_dict())
            last = state.finished or state.epoch == settings.epochs
            if last or log.seconds_since_save() > settings.checkpoint_seconds:
                state = log.save(state, model, optimiser, feed)

    finish(job, feed, network, model, state, metric, log)


def resume(job: TrainJob, model: cocn.CoCN, optimiser: torch.optim.Optimizer, feed: Feed) -> TrainState:
    """Continue from the last checkpoint, or start."""
    path = latest_checkpoint(job.directory, "last")
    if path is None:
        return TrainState()
    load_weights(path, model)
    load_optimiser(path, optimiser)
    state = read_state(path)
    feed.restore(state.cursor, load_sequencer(path))
    return state


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of the random numbers that a rank draws in a step."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def balance_classes(store: GraphStore, config: Config, device: torch.device) -> Tensor:
    """Weights that give every class the same say; their mean over the training nodes is 1."""
    labels = torch.from_numpy(store.labels()[store.split(config.data.split) == 0].copy()).long()
    counts = torch.bincount(labels[labels >= 0], minlength=store.manifest.num_classes).clamp(min=1)
    return (counts.sum() / (counts.numel() * counts)).float().to(device)


def set_learning_rate(optimiser: torch.optim.Optimizer, config: Config, step: int, total_steps: int) -> None:
    """The rate of a step, a function of its number alone."""
    rate = config.train.learning_rate
    if config.train.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * step / max(total_steps, 1)))
    for group in optimiser.param_groups:
        group["lr"] = rate


def check_finite(loss: float, state: TrainState, optimiser: torch.optim.Optimizer) -> float:
    """Stop at a loss that is no number, before it reaches a checkpoint."""
    if not math.isfinite(loss):
        rate = optimiser.param_groups[0]["lr"]
        raise UserError(
            f"Expected a finite loss (got {loss} in step {state.step} of epoch {state.epoch}): lower "
            f"train.learning_rate (now {rate:g}) or train.clip, or look for extreme values in the features"
        )
    return loss


def sum_over_ranks(value: Tensor) -> float:
    """A number summed over all ranks."""
    if dist.is_initialized():
        dist.all_reduce(value)
    return float(value)


def agree(decision: bool) -> bool:
    """Rank 0's decision, on every rank."""
    if not dist.is_initialized():
        return decision
    flag = torch.tensor([int(decision)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def assess(feed: Feed, network: nn.Module, part: str) -> Evaluation:
    """Score a part of the nodes in evaluation mode."""
    network.eval()
    with torch.inference_mode():
        predictions = feed.predict(getattr(network, "module", network), part)
    return evaluate(predictions.logits, predictions.label)


def is_better(value: float, best: float | None) -> bool:
    return best is None or value > best


def end_epoch(state: TrainState, record: EpochRecord, improved: bool, patience: int) -> TrainState:
    """The state at the start of the next epoch."""
    lower = state.lowest_loss is None or record.val_loss < state.lowest_loss
    waited = 0 if lower else state.epochs_since_lowest + 1
    return state.model_copy(
        update={
            "epoch": state.epoch + 1,
            "cursor": None,
            "loss_sum": 0.0,
            "rows": 0,
            "best_metric": record.val_metric if improved else state.best_metric,
            "best_epoch": record.epoch if improved else state.best_epoch,
            "lowest_loss": record.val_loss if lower else state.lowest_loss,
            "epochs_since_lowest": waited,
            "seconds": record.seconds,
            "finished": bool(patience) and waited >= patience,
        }
    )


class Log:
    """What rank 0 writes while training: lines of `epochs.jsonl`, metrics, checkpoints."""

    def __init__(self, job: TrainJob, state: TrainState, rank: int) -> None:
        self._job = job
        self._start = self._saved = time.monotonic()
        self._before = state.seconds
        self._tracker = Tracker(job.tracking, system_metrics=True) if job.tracking and rank == 0 else None

    def seconds(self) -> float:
        """Time spent training, over all attempts."""
        return self._before + time.monotonic() - self._start

    def seconds_since_save(self) -> float:
        return time.monotonic() - self._saved

    def epoch(self, record: EpochRecord) -> None:
        with (self._job.directory / EPOCHS).open("a", encoding="utf-8") as lines:
            lines.write(record.model_dump_json() + "\n")
        self.metrics(record.epoch, record.model_dump(exclude={"epoch", "step", "seconds"}))

    def metrics(self, step: int, values: dict[str, float]) -> None:
        if self._tracker is not None:
            self._tracker.log(step, values)

    def save(
        self, state: TrainState, model: nn.Module, optimiser: torch.optim.Optimizer, feed: Feed
    ) -> TrainState:
        state = state.model_copy(update={"seconds": self.seconds()})
        save_checkpoint(self._job.directory, "last", state, model.state_dict(), optimiser, feed.sequencer())
        self._saved = time.monotonic()
        return state

    def close(self) -> None:
        if self._tracker is not None:
            self._tracker.close()


def finish(
    job: TrainJob, feed: Feed, network: nn.Module, model: cocn.CoCN, state: TrainState, metric: str, log: Log
) -> None:
    """Score the best weights on the test nodes and write the result."""
    if dist.is_initialized():
        dist.barrier()
    best = latest_checkpoint(job.directory, "best")
    if best is None:
        raise UserError(f"Expected a best checkpoint in '{job.directory}' (got none): train for an epoch")
    load_weights(best, model)
    resequence = getattr(feed, "resequence", None)
    if resequence is not None and model.positions is not None:
        resequence()
    test = assess(feed, network, "test")
    if not dist.is_initialized() or dist.get_rank() == 0:
        result = TrainResult(
            model=job.config.model.name,
            dataset=job.config.data.source,
            split=job.config.data.split,
            seed=job.config.train.seed,
            metric=metric,
            test_metric=test.metrics[metric],
            best_val_metric=state.best_metric or 0.0,
            best_epoch=state.best_epoch,
            epochs=state.epoch,
            train_seconds=state.seconds,
            num_parameters=sum(parameter.numel() for parameter in model.parameters()),
            peak_memory_mb=peak_memory_mb(),
            test=test.metrics,
            weights_sha256=weights_digest(model.state_dict()),
            checkpoint=best,
        )
        names = ("test_metric", "best_val_metric", "train_seconds", "num_parameters", "peak_memory_mb")
        scores = {f"test_{name}": value for name, value in test.metrics.items()}
        log.metrics(state.epoch, {**{name: float(getattr(result, name)) for name in names}, **scores})
        write_result(job.directory, result)
    log.close()


def write_result(directory: Path, result: TrainResult) -> None:
    """Write the result whole or not at all."""
    building = directory / f".{RESULT}.{os.getpid()}"
    building.write_text(result.model_dump_json(indent=1), encoding="utf-8")
    building.replace(directory / RESULT)


def read_result(directory: Path) -> TrainResult | None:
    """The result of a finished training."""
    path = directory / RESULT
    return TrainResult.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None


def read_epochs(directory: Path) -> list[EpochRecord]:
    """The epochs of a training, each once, the last word on it counting."""
    path = directory / EPOCHS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [EpochRecord.model_validate(json.loads(line)) for line in lines if line.endswith("}")]
    return sorted({record.epoch: record for record in records}.values(), key=lambda record: record.epoch)


def peak_memory_mb() -> float:
    """Largest memory of this process so far; on CUDA that of the device."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
