"""What a training leaves in its directory, apart from checkpoints: a line per epoch, and a result."""

import json
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

from pipeline.runtime.memory import peak_memory, reset_peak
from pipeline.storage.files import replace_text

EPOCHS = "epochs.jsonl"
_NOW = "now.json"
RESULT = "result.json"


class EpochRecord(BaseModel):
    """One line of `epochs.jsonl`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    step: int
    train_loss: float
    val_loss: float | None
    """None for epochs that were not validated."""
    val_metric: float | None
    rows_per_second: float
    learning_rate: float
    seconds: float

    def metrics(self) -> dict[str, float]:
        """The metrics that are sent to the tracker."""
        values = self.model_dump(exclude={"epoch", "step", "seconds"})
        return {name: value for name, value in values.items() if value is not None}


class Now(BaseModel):
    """Where a training stands in mid-epoch, for progress displays."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    step: int
    """Steps of this epoch that are done."""
    steps: int
    """Steps of an epoch."""
    loss: float
    rows_per_second: float
    steps_per_second: float


class TrainResult(BaseModel):
    """The result of a training."""

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
    protocol: str = "holdout"
    """`gin` if the epoch was selected on the test part itself."""
    test_rows: int | None = None
    """Labelled test rows that were scored: a sample if the time budget is too small for all."""
    gates: dict[str, float] = {}
    """Weight of each input block in a modern model or SIGN, as a share; empty for other models."""
    out_of_time: bool = False
    """Whether the time budget ended it; with a larger one it continues."""

    def metrics(self) -> dict[str, float]:
        """The metrics that are sent to the tracker."""
        names = ("test_metric", "best_val_metric", "train_seconds", "num_parameters", "peak_memory_mb")
        scores = {f"test_{name}": value for name, value in self.test.items()}
        gates = {f"gate/{block}": share for block, share in self.gates.items()}
        return {**{name: float(getattr(self, name)) for name in names}, **scores, **gates}


def append_epoch(directory: Path, record: EpochRecord) -> None:
    """Append a line to `epochs.jsonl`, even after a line that was cut off by a kill."""
    path = directory / EPOCHS
    before = path.read_bytes() if path.exists() else b""
    cut_off = bool(before) and not before.endswith(b"\n")
    with path.open("a", encoding="utf-8") as lines:
        lines.write(("\n" if cut_off else "") + record.model_dump_json() + "\n")


def read_epochs(directory: Path) -> list[EpochRecord]:
    """The epochs of a training; if an epoch was recorded more than once, its last record."""
    path = directory / EPOCHS
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [EpochRecord.model_validate(json.loads(line)) for line in lines if line.endswith("}")]
    return sorted({record.epoch: record for record in records}.values(), key=lambda record: record.epoch)


def write_now(directory: Path, now: Now) -> None:
    """Write where the training stands."""
    replace_text(directory / _NOW, now.model_dump_json(indent=1))


def read_now(directory: Path) -> Now | None:
    """Where the training last stood."""
    path = directory / _NOW
    return Now.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None


def write_result(directory: Path, result: TrainResult) -> None:
    """Write the result atomically."""
    replace_text(directory / RESULT, result.model_dump_json(indent=1))


def read_result(directory: Path) -> TrainResult | None:
    """The result of a finished training."""
    path = directory / RESULT
    return TrainResult.model_validate_json(path.read_text(encoding="utf-8")) if path.exists() else None


def reset_peak_memory() -> None:
    """Reset the peaks left by earlier trainings in this process."""
    reset_peak()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def peak_memory_mb() -> float:
    """Peak memory of this process since the reset; with CUDA, that of the device."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    return peak_memory() / 2**20
