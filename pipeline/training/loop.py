"""Training: one loop for every model, in this process or under Ray Train in many."""

import math
import time
from contextlib import ExitStack, closing
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from cocn.modern import MixingCoCN, StreamingCoCN
from pipeline.config.loading import TrainConfig
from pipeline.models.metrics import Evaluation, chosen_metric, evaluate_predictions
from pipeline.models.networks import Network, build_model
from pipeline.models.parallel import distribute
from pipeline.runtime.errors import UserError
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import (
    TrainState,
    latest_checkpoint,
    load_optimiser,
    load_sequencer,
    load_weights,
    read_origin,
    read_state,
    weights_digest,
)
from pipeline.training.deadline import Deadline
from pipeline.training.evaluation_plan import EvaluationPlan, predict_part
from pipeline.training.feeds import open_feed
from pipeline.training.job import TrainJob
from pipeline.training.memory_hint import explain_memory
from pipeline.training.optimisation import (
    agree_on_step,
    balance_classes,
    check_finite,
    make_optimiser,
    set_learning_rate,
    step_seed,
    take_step,
)
from pipeline.training.origin import Origin
from pipeline.training.protocol import Feed
from pipeline.training.recorder import Recorder
from pipeline.training.remote_copy import pull
from pipeline.training.results import TrainResult, peak_memory_mb, reset_peak_memory
from pipeline.training.saving import CheckpointSaver


def train_worker(
    job: TrainJob, rank: int = 0, world_size: int = 1, device: str | torch.device = "cpu"
) -> None:
    """Train, from the last checkpoint in the job's directory if there is one. Runs on every rank.

    Raises:
        UserError: if the loss is not finite, memory runs out, or a checkpoint belongs to another store.
    """
    reset_peak_memory()
    with explain_memory(job.config), ExitStack() as resources:
        _run_epochs(job, rank, world_size, torch.device(device), resources)


def _run_epochs(
    job: TrainJob, rank: int, world_size: int, device: torch.device, resources: ExitStack
) -> None:
    """The loop; `resources` closes what it opens, however it ends."""
    settings, began = job.config.train, time.monotonic()
    if job.mirror is not None:
        pull(job.mirror, job.directory)
    store = open_store(job.store)
    origin = Origin.of(job.config, store)
    torch.manual_seed(settings.seed)
    model = build_model(job.config.model, job.config.segments, origin.inputs).to(device)
    feed = open_feed(store, job.config, model, rank, world_size, device)
    optimiser = make_optimiser(model.parameters(), settings)
    state = _resume(job, store, model, optimiser, feed)
    network = distribute(model, job.config.model, rank, world_size, batched=origin.inputs.batched)
    inputs = origin.inputs
    metric = chosen_metric(settings.metric, inputs.num_classes, inputs.task, inputs.answer)
    weighted = settings.class_weights and inputs.task != "link" and inputs.answer == "classes"
    class_weights = balance_classes(store, job.config, device) if weighted else None
    total_steps = settings.epochs * feed.steps_per_epoch
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bfloat16")
    deadline = Deadline(settings.time_budget, spent=state.seconds + time.monotonic() - began)
    plan = EvaluationPlan(feed, settings)
    saver = CheckpointSaver(job, origin, rank)
    recorder = resources.enter_context(closing(Recorder(job, state, rank)))
    out_of_time = False

    while not (out_of_time or _is_done(state, settings)):
        feed.start_epoch(state.epoch)
        recorder.start_epoch(state)
        plan.start_epoch()
        network.train()
        for share in feed.shares():
            set_learning_rate(optimiser, job.config, state.step, total_steps)
            # Dropout depends on the step only, not on what ran before it, so a resumed run repeats it.
            torch.manual_seed(step_seed(settings.seed, state.step, rank))
            with autocast:
                loss = feed.losses(network, share, class_weights) / share.rows
            take_step(loss, model, optimiser, settings.clip, world_size)
            plan.record_step()
            total, out_of_time = agree_on_step(loss, deadline.is_over(plan.reserve()))
            check_finite(total, state, share, optimiser)
            state = state.after_step(total, share.rows, feed.cursor())
            recorder.record_step(state, feed.steps_per_epoch)
            if saver.is_due():
                saver.save_last(state.at(deadline.spent()), model, optimiser, feed.sequencer())
            if out_of_time:
                break

        rows_per_second = recorder.rows_per_second(state)
        sequencer = feed.sequencer()  # of this epoch; validation may replace it
        validate = plan.is_validation_due(state.epoch) or out_of_time
        validation = assess(feed, network, "val", metric, state, plan.share("val")) if validate else None
        recorder.record_epoch(
            state,
            validation,
            metric,
            rows_per_second=rows_per_second,
            learning_rate=optimiser.param_groups[0]["lr"],
            seconds=deadline.spent(),
        )
        best_before = state.best_metric
        state = state.after_validation(None if validation is None else validation.metrics[metric])
        improved = state.best_metric != best_before
        if feed.epoch_ended:
            state = state.after_epoch(_regret(validation, metric, settings), settings.patience)
            sequencer = feed.sequencer()
        if improved:
            saver.save_best(state, model)
        if _is_done(state, settings) or saver.is_due() or out_of_time:
            saver.save_last(state.at(deadline.spent()), model, optimiser, sequencer)

    test = _assess_best(job, feed, network, model, state, metric, plan.share("test"))
    recorder.record_result(
        _describe_result(job, model, state, metric, test, seconds=deadline.spent(), out_of_time=out_of_time)
    )


def _resume(
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


def _regret(validation: Evaluation | None, metric: str, settings: TrainConfig) -> float | None:
    """What falls as training makes progress: the validation loss, or the negated metric."""
    if validation is None:
        return None
    return validation.loss if settings.patience_on == "loss" else -validation.metrics[metric]


def _is_done(state: TrainState, settings: TrainConfig) -> bool:
    """Whether the last epoch is over, or patience has run out."""
    return state.finished or state.epoch >= settings.epochs


def assess(
    feed: Feed, network: nn.Module, part: str, metric: str, state: TrainState, share: float = 1.0
) -> Evaluation:
    """Score a part of the split, or a random share of it, in evaluation mode.

    Raises:
        UserError: if the metric is undefined there.
    """
    network.eval()
    with torch.inference_mode():
        predictions = predict_part(feed, getattr(network, "module", network), part, share)
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


def _assess_best(
    job: TrainJob,
    feed: Feed,
    network: nn.Module,
    model: Network,
    state: TrainState,
    metric: str,
    share: float,
) -> Evaluation:
    """Load the best weights into the model and score them on the test part, or on a random share of it.

    Raises:
        UserError: if there are none.
    """
    if dist.is_initialized():
        dist.barrier()
        if job.mirror is not None and dist.get_rank() > 0:
            pull(job.mirror, job.directory)  # rank 0 wrote the best weights, maybe on another node
        dist.barrier()
    load_weights(_best_checkpoint(job), model)
    return assess(feed, network, "test", metric, state, share)


def _best_checkpoint(job: TrainJob) -> Path:
    """The checkpoint with the best weights.

    Raises:
        UserError: if there is none.
    """
    best = latest_checkpoint(job.directory, "best")
    if best is None:
        raise UserError(f"Expected a best checkpoint in '{job.directory}' (got none): train for an epoch")
    return best


def _describe_result(
    job: TrainJob,
    model: Network,
    state: TrainState,
    metric: str,
    test: Evaluation,
    *,
    seconds: float,
    out_of_time: bool,
) -> TrainResult:
    """The result of a training, with its best weights in the model."""
    best = _best_checkpoint(job)
    return TrainResult(
        model=job.config.model.name,
        dataset=read_origin(best).dataset,
        split=job.config.data.split,
        seed=job.config.train.seed,
        metric=metric,
        test_metric=test.metrics[metric],
        best_val_metric=state.best_metric or 0.0,
        best_epoch=state.best_epoch,
        epochs=state.epoch,
        train_seconds=seconds,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        peak_memory_mb=peak_memory_mb(),
        test=test.metrics,
        test_rows=test.num_rows,
        gates=_gates_of(model),
        weights_sha256=weights_digest(model.state_dict()),
        protocol=job.config.data.protocol,
        checkpoint=best,
        out_of_time=out_of_time,
    )


def _gates_of(model: nn.Module) -> dict[str, float]:
    """How much each input block counts, for models that have blocks."""
    return model.gates() if isinstance(model, MixingCoCN | StreamingCoCN) else {}
