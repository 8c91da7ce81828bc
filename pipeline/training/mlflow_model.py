"""A checkpoint as a model for MLflow: code and safetensors, nothing pickled."""

from importlib.resources import files
from pathlib import Path

from pipeline.tracking.mlflow_models import save_model
from pipeline.training.checkpoint import read_origin

_MODEL = "model"


def row_kind(checkpoint: Path) -> str:
    """What a model predicts for, and the column it reads: `node` or `graph`.

    A link model is logged like a node model, and says on the first call that it has no classes.
    """
    return "graph" if read_origin(checkpoint).inputs.task == "graph" else "node"


def write_model(directory: Path, checkpoint: Path) -> Path:
    """Write a checkpoint as an MLflow model next to it, replacing an earlier one.

    Args:
        directory: Directory of a training.
        checkpoint: Its best checkpoint.
    """
    script = Path(str(files("pipeline.training") / "assets" / "model.py"))
    return save_model(directory / _MODEL, script, checkpoint, row_kind(checkpoint))
