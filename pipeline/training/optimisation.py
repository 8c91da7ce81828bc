"""One optimiser step: its learning rate, random numbers and gradient, and what ranks agree on after it."""

import hashlib
import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

import cocn
from pipeline.config.loading import Config, TrainConfig
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import rows_of_part
from pipeline.training.adam import Adam
from pipeline.training.checkpoint import TrainState
from pipeline.training.protocol import Share


def make_optimiser(parameters: Iterable[nn.Parameter], settings: TrainConfig) -> Adam:
    """Adam, with weight decay decoupled from the gradient or added to it."""
    return Adam(
        parameters,
        settings.learning_rate,
        weight_decay=settings.weight_decay,
        decoupled_weight_decay=settings.optimiser == "adamw",
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, config: Config, step: int, total_steps: int) -> None:
    """The learning rate of a step, which depends on its number only."""
    settings = config.train
    rate = settings.learning_rate
    if settings.schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * step / max(total_steps, 1)))
    if step < settings.warmup_steps:
        rate *= (step + 1) / (settings.warmup_steps + 1)
    for group in optimiser.param_groups:
        group["lr"] = rate


def step_seed(seed: int, step: int, rank: int) -> int:
    """Seed of the random numbers that a rank draws in a step."""
    digest = hashlib.blake2b(f"{seed}/{step}/{rank}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")


def balance_classes(store: GraphStore, config: Config, device: torch.device) -> Tensor:
    """Weights that give every class the same influence; their mean over the training part is 1."""
    rows = rows_of_part(store.split(config.data.split), "train", config.data.protocol)
    labels = torch.from_numpy(store.labels()[rows]).long()
    counts = torch.bincount(labels[labels >= 0], minlength=store.manifest.num_classes).clamp(min=1)
    return (counts.sum() / (counts.numel() * counts)).float().to(device)


def take_step(
    loss: Tensor, model: nn.Module, optimiser: torch.optim.Optimizer, clip: float, world_size: int
) -> None:
    """One optimiser step down the gradient of the loss, which is the sum of its parts on all ranks."""
    # DistributedDataParallel averages over ranks, and the loss is a sum over them.
    (loss * world_size).backward()
    if clip:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def agree_on_step(loss: Tensor, out_of_time: bool) -> tuple[float, bool]:
    """What all ranks agree on after a step: the sum of their losses, and whether any of them is out of
    time."""
    values = torch.stack([loss.detach().float(), loss.new_tensor(float(out_of_time), dtype=torch.float)])
    if dist.is_initialized():
        dist.all_reduce(values)
    total, flags = values.tolist()
    return total, flags > 0


def check_finite(loss: float, state: TrainState, share: Share, optimiser: torch.optim.Optimizer) -> None:
    """Stop at a loss that is not finite, before it reaches a checkpoint."""
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
