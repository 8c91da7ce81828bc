"""One small JSON file per run: the number, and everything needed to reproduce it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import RECORDS, SOURCE, device_name, source_revision
from pipeline.storage.files import atomic_file

Scale = Literal["paper", "quick"]
_Kind = TypeVar("_Kind", bound=BaseModel)
#: Where a checkout keeps measurements; an installed wheel writes to its output directory.
IN_SOURCE = SOURCE / RECORDS


class Source(BaseModel):
    """Where a number comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str
    revision: str | None
    dirty: bool
    device: str

    @classmethod
    def here(cls, command: str) -> "Source":
        revision = source_revision()
        return cls(command=command, revision=revision.commit, dirty=revision.dirty, device=device_name())


class TrainingRecord(BaseModel):
    """One training: a model with its settings on one split of a dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    model: str
    variant: str
    """What distinguishes it from the preset, such as `tau=0.1`; empty for the preset itself."""
    scale: Scale
    split: int
    seed: int
    metric: str
    value: float
    """Score on the test part, at the epoch that is best on the validation part."""
    validation: float
    epochs: int
    best_epoch: int
    cut_short: bool
    """Whether time ran out before training ended by itself."""
    seconds: float
    peak_memory_mb: float
    num_parameters: int
    curve: Mapping[int, float] = Field(default_factory=dict)
    """Score by epoch if the protocol uses the same epoch for all folds, as in the GIN paper."""
    settings: Mapping[str, JsonValue]
    source: Source

    @property
    def path(self) -> Path:
        return _training_path(self.dataset, self.model, self.variant, self.scale, self.split, self.seed)


class Measurement(BaseModel):
    """One case of a study that trains nothing, or not for a score."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    study: str
    case: Mapping[str, JsonValue]
    values: Mapping[str, float]
    seconds: float
    source: Source

    @property
    def path(self) -> Path:
        return _measurement_path(self.study, self.case)


def _training_path(dataset: str, model: str, variant: str, scale: Scale, split: int, seed: int) -> Path:
    """Place of a training's record under the directory of records."""
    name = f"{model}-{_slug(variant)}" if variant else model
    return Path("trainings") / dataset / name / f"{scale}-split{split}-seed{seed}.json"


def _measurement_path(study: str, case: Mapping[str, JsonValue]) -> Path:
    """Place of a measurement's record under the directory of records."""
    return Path(study) / f"{'-'.join(_slug(str(value)) for value in case.values())}.json"


def _slug(text: str) -> str:
    """Text that is safe in a file name."""
    return re.sub(r"[^\w.=]+", "-", text.lower()).strip("-")


class Records:
    """The records in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, record: TrainingRecord | Measurement) -> None:
        """Write a record atomically, replacing an earlier one."""
        path = self.directory / record.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write((record.model_dump_json(indent=1) + "\n").encode())

    def training(
        self, dataset: str, model: str, variant: str, scale: Scale, split: int, seed: int
    ) -> TrainingRecord | None:
        """The record of a training, if any."""
        path = self.directory / _training_path(dataset, model, variant, scale, split, seed)
        return _read(path, TrainingRecord) if path.exists() else None

    def measurement(self, study: str, case: Mapping[str, JsonValue]) -> Measurement | None:
        """The record of a case, if any."""
        path = self.directory / _measurement_path(study, case)
        return _read(path, Measurement) if path.exists() else None

    def trainings(self) -> Iterator[TrainingRecord]:
        """All trainings, by dataset, model, variant, split and seed."""
        for path in sorted((self.directory / "trainings").glob("*/*/*.json")):
            yield _read(path, TrainingRecord)

    def measurements(self, study: str) -> list[Measurement]:
        """All cases of a study."""
        return [_read(path, Measurement) for path in sorted((self.directory / study).glob("*.json"))]


def default_directory(output: Path) -> Path:
    """Next to the source in a checkout, else under the output directory."""
    return IN_SOURCE if source_revision().commit is not None else output / "records"


def _read(path: Path, kind: type[_Kind]) -> _Kind:
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise UserError(
            f"Expected a record in '{path}' (got {error.error_count()} mistakes): remove it"
        ) from error
