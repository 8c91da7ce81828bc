"""Training: one loop for every model, in this process or under Ray Train on many."""

import hashlib
import math
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import cocn
from pipeline.config.loading import Config, TrainConfig
from pipeline.models.metrics import Evaluation, chosen_metric, evaluate_predictions
from pipeline.models.networks import Network, build_model
from pipeline.models.parallel import distribute
from pipeline.runtime.errors import UserError
from pipeline.storage.object_store import Remote
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.tracking.run_logger import RunReference, Tracker
from pipeline.training.checkpoint import (
    TrainState,
    latest_checkpoint,
    load_optimiser,
    load_sequencer,
    load_weights,
    read_origin,
    read_state,
    save_checkpoint,
    weights_digest,
)
from pipeline.training.feeds import open_feed
from pipeline.training.memory_hint import explain_memory
from pipeline.training.origin import Origin
from pipeline.training.protocol import Feed, Share
from pipeline.training.remote_copy import pull, push
from pipeline.training.results import (
    EpochRecord,
    Now,
    TrainResult,
    append_epoch,
    peak_memory_mb,
    read_epochs,
    read_result,
    reset_peak_memory,
    write_now,
    write_result,
)

#: Seconds between two signs of life in mid-epoch.
BEAT_SECONDS = 1.0

__all__ = ["TrainJob", "TrainResult", "read_epochs", "read_result", "train_worker"]


@dataclass(frozen=True)
class TrainJob:
    """Everything a worker needs to train.

    Attributes:
        config: the resolved configuration.
        store: the graph store.
        directory: where checkpoints, epochs and the result go; the same job continues there.
        tracking: the MLflow run that rank 0 logs to.
        mirror: where the directory is copied to, and what it begins with on every node.
    """

    config: Config
    store: Path | Remote
    directory: Path
    tracking: RunReference | None = None
    mirror: Remote | None = None

    def publish(self) -> None:
        """Copy what the directory holds to its mirror."""
        if self.mirror is not None:
            push(self.directory, self.mirror)


def train_worker(
    job: TrainJob, rank: int = 0, world_size: int = 1, device: str | torch.device = "cpu"
) -> None:
    """Train, from the last checkpoint in the job's directory if there is one. Runs on every rank.

    Raises:
        UserError: if the loss is no number, memory runs out, or a checkpoint belongs to another store.
    """
    reset_peak_memory()
    with explain_memory(job.config), ExitStack() as leaving:
        run_epochs(job, rank, world_size, torch.device(device), leaving)


def run_epochs(job: TrainJob, rank: int, world_size: int, device: torch.device, leaving: ExitStack) -> None:
    """The loop; `leaving` closes what it opens, however it ends."""
    settings = job.config.train
    if job.mirror is not None:
        pull(job.mirror, job.directory)
    store = GraphStore.open(job.store)
    origin = Origin.of(job.config, store)
    torch.manual_seed(settings.seed)
    model = build_model(job.config.model, job.config.segments, origin.inputs).to(device)
    feed = open_feed(store, job.config, model, rank, world_size, device)
    optimiser = make_optimiser(model.parameters(), settings)
    state = resume(job, store, model, optimiser, feed)
    network = distribute(model, job.config.model, rank, world_size, batched=origin.inputs.batched)
    metric = chosen_metric(settings.metric, origin.inputs.num_classes, origin.inputs.task)
    weighted = settings.class_weights and origin.inputs.task != "link"
    class_weights = balance_classes(store, job.config, device) if weighted else None
    total_steps = settings.epochs * feed.steps_per_epoch
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")
    log = leaving.enter_context(closing(Log(job, origin, state, rank)))
    out_of_time = False

    while not (out_of_time or is_done(state, settings)):
        feed.start_epoch(state.epoch)
        epoch_start, rows_before = time.monotonic(), state.rows
        network.train()
        for share in feed.shares():
            set_learning_rate(optimiser, job.config, state.step, total_steps)
            # Dropout depends on the step and not on what ran before it, so a resumed run repeats it.
            torch.manual_seed(step_seed(settings.seed, state.step, rank))
            with autocast:
                loss = feed.losses(network, share, class_weights) / share.rows
            take_step(loss, model, optimiser, settings.clip, world_size)
            total, out_of_time = sum_over_ranks(loss, log.is_out_of_time())
            check_finite(total, state, share, optimiser)
            state = state.after_step(total, share.rows, feed.cursor())
            log.step(state, feed.steps_per_epoch)
            if rank == 0 and log.is_save_due():
                log.save(state, model, optimiser, feed.sequencer())
            if out_of_time:
                break

        rate = (state.rows - rows_before) / max(time.monotonic() - epoch_start, 1e-9)
        sequencer = feed.sequencer()
        due = (state.epoch + 1) % settings.validate_every == 0 or state.epoch + 1 == settings.epochs
        validation = assess(feed, network, "val", metric, state) if due or out_of_time else None
        record = log.record(state, validation, metric, rate, optimiser)
        best_before = state.best_metric
        state = state.after_validation(record.val_metric)
        improved = state.best_metric != best_before
        if feed.epoch_ended:
            state = state.after_epoch(record.val_loss, settings.patience)
            sequencer = feed.sequencer()
        if rank == 0:
            log.epoch(record)
            if improved:
                save_checkpoint(job.directory, "best", state, model.state_dict(), origin=origin)
            due = is_done(state, settings) or log.is_save_due()
            if due or out_of_time:
                log.save(state, model, optimiser, sequencer)

    finish(job, feed, network, model, state, metric, log, out_of_time)


def take_step(
    loss: Tensor, model: nn.Module, optimiser: torch.optim.Optimizer, clip: float, world_size: int
) -> None:
    """One optimiser step down the gradient of the loss, whose parts on all ranks add up."""
    # DistributedDataParallel averages over ranks, and the loss is a sum over them.
    (loss * world_size).backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def resume(
    job: TrainJob, store: GraphStore, model: Network, optimiser: torch.optim.Optimizer, feed: Feed
) -> TrainState:
    """Continue from the last checkpoint, or start."""
    path = latest_checkpoint(job.directory, "last")
    if path is None:
        return TrainState()
    read_origin(path).require_store(store, path)
    load_weights(path, model)
    load_optimiser(path, optimiser)
    state = read_state(path)
    feed.restore(state.cursor, load_sequencer(path))
    return state


def is_done(state: TrainState, settings: TrainConfig) -> bool:
    """Whether the last epoch is over, or patience is."""
    return state.finished or state.epoch >= settings.epochs


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of the random numbers that a rank draws in a step."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def balance_classes(store: GraphStore, config: Config, device: torch.device) -> Tensor:
    """Weights that give every class the same say; their mean over the training part is 1."""
    rows = rows_of_part(store.split(config.data.split), "train", config.data.protocol)
    labels = torch.from_numpy(store.labels()[rows]).long()
    counts = torch.bincount(labels[labels >= 0], minlength=store.manifest.num_classes).clamp(min=1)
    return (counts.sum() / (counts.numel() * counts)).float().to(device)


def set_learning_rate(optimiser: torch.optim.Optimizer, config: Config, step: int, total_steps: int) -> None:
    """The rate of a step, a function of its number alone."""
    settings = config.train
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * step / max(total_steps, 1)))
    if step < settings.warmup_steps:
        rate *= (step + 1) / (settings.warmup_steps + 1)
    for group in optimiser.param_groups:
        group["lr"] = rate


def check_finite(loss: float, state: TrainState, share: Share, optimiser: torch.optim.Optimizer) -> None:
    """Stop at a loss that is no number, before it reaches a checkpoint."""
    if math.isfinite(loss):
        return
    batch = share.batch
    nodes = f"with nodes {batch.node[:4].tolist()}…" if isinstance(batch, cocn.SegmentBatch) else "of graphs"
    rate = optimiser.param_groups[0]["lr"]
    raise UserError(
        f"Expected a finite loss (got {loss} in step {state.step} of epoch {state.epoch}, a batch of "
        f"{share.rows} rows {nodes}): lower train.learning_rate (now {rate:g}) or train.clip, or look for "
        "extreme values in the features"
    )


def make_optimiser(parameters: Iterable[nn.Parameter], settings: TrainConfig) -> torch.optim.Adam:
    """Adam, with weight decay apart from the gradient or in it."""
    return torch.optim.Adam(
        parameters,
        settings.learning_rate,
        weight_decay=settings.weight_decay,
        decoupled_weight_decay=settings.optimiser == "adamw",
    )


def sum_over_ranks(loss: Tensor, out_of_time: bool) -> tuple[float, bool]:
    """The loss summed over all ranks, and whether time is out on any of them."""
    values = torch.stack([loss.detach().float(), loss.new_tensor(float(out_of_time), dtype=torch.float)])
    if dist.is_initialized():
        dist.all_reduce(values)
    total, flags = values.tolist()
    return total, flags > 0


def assess(feed: Feed, network: nn.Module, part: str, metric: str, state: TrainState) -> Evaluation:
    """Score a part of the split in evaluation mode.

    Raises:
        UserError: if the metric has no value there.
    """
    network.eval()
    with torch.inference_mode():
        predictions = feed.predict(getattr(network, "module", network), part)
    scores = evaluate_predictions(predictions)
    if not math.isfinite(scores.loss):
        raise UserError(
            f"Expected a finite loss on the {part} part (got {scores.loss} after step {state.step} of epoch "
            f"{state.epoch}): lower train.learning_rate"
        )
    if metric not in scores.metrics:
        raise UserError(
            f"Expected '{metric}' to have a value on the {part} part (got none: a class or link is missing): "
            "choose another train.metric or split"
        )
    return scores


class Log:
    """What rank 0 writes while training: lines of `epochs.jsonl`, metrics, checkpoints."""

    def __init__(self, job: TrainJob, origin: Origin, state: TrainState, rank: int) -> None:
        self._job = job
        self._origin = origin
        self._start = self._saved = time.monotonic()
        self._before = state.seconds
        self._tracker = Tracker(job.tracking, system_metrics=True) if job.tracking and rank == 0 else None
        self._writes = rank == 0
        self._beat, self._beat_state = self._start, state

    def seconds(self) -> float:
        """Time spent training, over all attempts."""
        return self._before + time.monotonic() - self._start

    def is_out_of_time(self) -> bool:
        budget = self._job.config.train.time_budget
        return budget is not None and self.seconds() > budget

    def is_save_due(self) -> bool:
        return time.monotonic() - self._saved > self._job.config.train.checkpoint_seconds

    def step(self, state: TrainState, steps_per_epoch: int) -> None:
        """Tell whoever watches where the training stands, now and then."""
        now, before = time.monotonic(), self._beat_state
        passed = now - self._beat
        if not self._writes or passed < BEAT_SECONDS:
            return
        rows = state.rows - before.rows if state.epoch == before.epoch else state.rows
        standing = Now(
            epoch=state.epoch,
            step=state.step % steps_per_epoch or steps_per_epoch,
            steps=steps_per_epoch,
            loss=state.loss_sum / state.rows,
            rows_per_second=rows / passed,
            steps_per_second=(state.step - before.step) / passed,
        )
        write_now(self._job.directory, standing)
        self._beat, self._beat_state = now, state

    def record(
        self,
        state: TrainState,
        validation: Evaluation | None,
        metric: str,
        rows_per_second: float,
        optimiser: torch.optim.Optimizer,
    ) -> EpochRecord:
        """The epoch that ends here."""
        return EpochRecord(
            epoch=state.epoch,
            step=state.step,
            train_loss=state.loss_sum / max(state.rows, 1),
            val_loss=None if validation is None else validation.loss,
            val_metric=None if validation is None else validation.metrics[metric],
            rows_per_second=rows_per_second,
            learning_rate=optimiser.param_groups[0]["lr"],
            seconds=self.seconds(),
        )

    def epoch(self, record: EpochRecord) -> None:
        append_epoch(self._job.directory, record)
        self.metrics(record.epoch, record.metrics())

    def metrics(self, step: int, values: dict[str, float]) -> None:
        if self._tracker is not None:
            self._tracker.log(step, values)

    def save(
        self,
        state: TrainState,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        sequencer: dict[str, Tensor] | None,
    ) -> None:
        state = state.model_copy(update={"seconds": self.seconds()})
        weights = model.state_dict()
        save_checkpoint(self._job.directory, "last", state, weights, optimiser, sequencer, self._origin)
        self._job.publish()
        self._saved = time.monotonic()

    def close(self) -> None:
        if self._tracker is not None:
            self._tracker.close()


def finish(
    job: TrainJob,
    feed: Feed,
    network: nn.Module,
    model: Network,
    state: TrainState,
    metric: str,
    log: Log,
    out_of_time: bool,
) -> None:
    """Score the best weights on the test part and write the result."""
    if dist.is_initialized():
        dist.barrier()
        if job.mirror is not None and dist.get_rank() > 0:
            pull(job.mirror, job.directory)  # rank 0 wrote the best weights, maybe on another node
        dist.barrier()
    best = latest_checkpoint(job.directory, "best")
    if best is None:
        raise UserError(f"Expected a best checkpoint in '{job.directory}' (got none): train for an epoch")
    load_weights(best, model)
    test = assess(feed, network, "test", metric, state)
    if not dist.is_initialized() or dist.get_rank() == 0:
        result = TrainResult(
            model=job.config.model.name,
            dataset=read_origin(best).dataset,
            split=job.config.data.split,
            seed=job.config.train.seed,
            metric=metric,
            test_metric=test.metrics[metric],
            best_val_metric=state.best_metric or 0.0,
            best_epoch=state.best_epoch,
            epochs=state.epoch,
            train_seconds=log.seconds(),
            num_parameters=sum(parameter.numel() for parameter in model.parameters()),
            peak_memory_mb=peak_memory_mb(),
            test=test.metrics,
            weights_sha256=weights_digest(model.state_dict()),
            protocol=job.config.data.protocol,
            checkpoint=best,
            out_of_time=out_of_time,
        )
        log.metrics(state.epoch, result.metrics())
        write_result(job.directory, result)
        job.publish()
