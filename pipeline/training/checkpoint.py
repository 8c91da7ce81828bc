"""Checkpoints: weights and optimiser as safetensors, everything else as JSON; complete or absent.

A checkpoint is a directory that gets its name only when all its files are on disk. Names carry an increasing
number, so the newest complete one is the one to continue from, no matter what was killed when.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pipeline.runtime.errors import UserError
from pipeline.segments.loader import LoaderState
from pipeline.storage.files import explain_full_disk, sync_directory
from pipeline.training.origin import Origin

Kind = Literal["last", "best"]

WEIGHTS = "model.safetensors"
_OPTIMISER = "optimiser.safetensors"
_SEQUENCER = "sequencer.safetensors"
_ORIGIN = "config.json"
_STATE = "state.json"


class TrainState(BaseModel):
    """Where a training stands, apart from its tensors.

    The random numbers of a step depend on seed, epoch, step and rank only, so no generator needs saving.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int = 0
    """The current epoch, or the one about to start."""
    step: int = 0
    """Optimiser steps taken so far."""
    cursor: LoaderState | None = None
    """Position in the current epoch; None at its start."""
    loss_sum: float = 0.0
    """Loss summed over the rows of the current epoch."""
    rows: int = 0
    """Rows of the current epoch so far."""
    best_metric: float | None = None
    best_epoch: int = -1
    lowest_loss: float | None = None
    epochs_since_lowest: int = 0
    seconds: float = 0.0
    """Time spent training, over all attempts."""
    finished: bool = False

    def after_step(self, loss: float, rows: int, cursor: LoaderState | None) -> "TrainState":
        """The state after one more optimiser step, with its mean loss and its rows over all ranks."""
        return self.model_copy(
            update={
                "step": self.step + 1,
                "cursor": cursor,
                "loss_sum": self.loss_sum + loss * rows,
                "rows": self.rows + rows,
            }
        )

    def at(self, seconds: float) -> "TrainState":
        """The same state, after the given number of seconds of training."""
        return self.model_copy(update={"seconds": seconds})

    def after_validation(self, metric: float | None) -> "TrainState":
        """The state after a validation of the current epoch, or without one."""
        if metric is None or (self.best_metric is not None and metric <= self.best_metric):
            return self
        return self.model_copy(update={"best_metric": metric, "best_epoch": self.epoch})

    def after_epoch(self, val_loss: float | None, patience: int) -> "TrainState":
        """The state at the start of the next epoch, or finished if the loss has not fallen for too long."""
        lower = val_loss is not None and (self.lowest_loss is None or val_loss < self.lowest_loss)
        waited = 0 if lower else self.epochs_since_lowest + 1
        return self.model_copy(
            update={
                "epoch": self.epoch + 1,
                "cursor": None,
                "loss_sum": 0.0,
                "rows": 0,
                "lowest_loss": val_loss if lower else self.lowest_loss,
                "epochs_since_lowest": waited,
                "finished": bool(patience) and val_loss is not None and waited >= patience,
            }
        )


def save_checkpoint(
    directory: Path,
    kind: Kind,
    state: TrainState,
    weights: dict[str, Tensor],
    optimiser: torch.optim.Optimizer | None = None,
    sequencer: dict[str, Tensor] | None = None,
    origin: Origin | None = None,
) -> Path:
    """Write a checkpoint under the next number of its kind and remove the earlier ones."""
    older = list_checkpoints(directory, kind)
    number = 1 + max((_number(path) for path in older), default=0)
    final = directory / f"{kind}-{number:08d}"
    building = directory / f".{final.name}.{os.getpid()}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        with explain_full_disk(final):
            _save_tensors(_contiguous(weights), building / WEIGHTS)
            if optimiser is not None:
                _save_tensors(_optimiser_tensors(optimiser), building / _OPTIMISER)
            if sequencer is not None:
                _save_tensors(_contiguous(sequencer), building / _SEQUENCER)
            if origin is not None:
                (building / _ORIGIN).write_text(origin.model_dump_json(indent=1), encoding="utf-8")
            (building / _STATE).write_text(state.model_dump_json(indent=1), encoding="utf-8")
            for path in building.iterdir():
                _sync(path)
            building.rename(final)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    sync_directory(directory)
    for path in older:
        shutil.rmtree(path, ignore_errors=True)
    return final


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors; if the system refuses, raise an OSError instead of the library's own error."""
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def latest_checkpoint(directory: Path, kind: Kind) -> Path | None:
    """The newest complete checkpoint of a kind."""
    return max(list_checkpoints(directory, kind), key=_number, default=None)


def list_checkpoints(directory: Path, kind: Kind) -> list[Path]:
    """Complete checkpoints of a kind; more than one only after a kill at the wrong moment."""
    return sorted(path for path in directory.glob(f"{kind}-*") if (path / _STATE).is_file())


def read_state(path: Path) -> TrainState:
    """The state of a checkpoint."""
    return TrainState.model_validate_json((path / _STATE).read_text(encoding="utf-8"))


def read_origin(path: Path) -> Origin:
    """The configuration and the graph of a checkpoint.

    Raises:
        UserError: if the checkpoint has no such record, or one of a different version.
    """
    file = path / _ORIGIN
    if not file.is_file():
        raise UserError(f"Expected '{path}' to be a checkpoint with '{_ORIGIN}' (got none)")
    try:
        return Origin.model_validate_json(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise UserError(f"Expected '{file}' to be UTF-8 text (byte {error.start} is not)") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"Expected '{file}' to be written by this version (got {first['msg']} at '{place}')"
        ) from error


def find_checkpoint(path: Path) -> Path:
    """The checkpoint at `path`, or the best one of the training there.

    Raises:
        UserError: if there is none.
    """
    if (path / _STATE).is_file():
        return path
    found = latest_checkpoint(path, "best")
    if found is None:
        raise UserError(f"Expected a checkpoint or a training with one in '{path}' (got none)")
    return found


def load_weights(path: Path, model: nn.Module) -> None:
    """Load the weights of a checkpoint into a model.

    Raises:
        UserError: if they belong to a model of a different shape.
    """
    try:
        model.load_state_dict(_load_tensors(path / WEIGHTS))
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"Expected '{path}' to fit the model (got {reason})") from error


def load_sequencer(path: Path) -> dict[str, Tensor] | None:
    """Weights of the position regression that produced the sequences of the current epoch."""
    return _load_tensors(path / _SEQUENCER) if (path / _SEQUENCER).exists() else None


def _optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors by parameter number and name."""
    state: dict[int, dict[str, Any]] = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": value.contiguous()
        for number, values in state.items()
        for name, value in values.items()
        if isinstance(value, Tensor)
    }


def load_optimiser(path: Path, optimiser: torch.optim.Optimizer) -> None:
    """Restore the tensors of a checkpoint; hyper-parameters stay those of the configuration."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in _load_tensors(path / _OPTIMISER).items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"Expected '{path}' to be a complete file of tensors (got {error}): use another checkpoint"
        ) from error


def weights_digest(weights: dict[str, Tensor]) -> str:
    """Digest of weights; equal if and only if they are bitwise equal."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _number(path: Path) -> int:
    return int(path.name.rsplit("-", 1)[1])


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
