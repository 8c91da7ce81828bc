"""Checkpoints of recorded trainings: from an MLflow run to a directory on this machine."""

from pathlib import Path

from pipeline.runtime.errors import UserError
from pipeline.tracking.mlflow_store import TrackedRun, TrackingStore
from pipeline.training.checkpoint import find_checkpoint, latest_checkpoint

_ARTIFACT = "checkpoint"
_DOWNLOADS = "downloads"


def checkpoint_of_run(tracking: TrackingStore, run_id: str, output: Path) -> Path:
    """The best checkpoint of a training: the one on disk, or the copy kept with the run.

    Args:
        tracking: Where the run is recorded.
        run_id: Id of a training's run.
        output: Directory to download a copy to.

    Raises:
        UserError: if there is no such run, or it has no checkpoint.
    """
    run = _read_run(tracking, run_id)
    directory = Path(run.tags.get("cocn.directory", ""))
    if "cocn.directory" in run.tags and latest_checkpoint(directory, "best") is not None:
        return find_checkpoint(directory)
    if not tracking.client.list_artifacts(run_id, _ARTIFACT):
        raise UserError(
            f"Expected run '{run_id}' to be a training with a checkpoint (got '{run.name}' without one)"
        )
    place = output.absolute() / _DOWNLOADS / run_id
    place.mkdir(parents=True, exist_ok=True)
    return Path(tracking.client.download_artifacts(run_id, _ARTIFACT, str(place)))


def _read_run(tracking: TrackingStore, run_id: str) -> TrackedRun:
    try:
        return tracking.read_run(run_id)
    except Exception as error:
        raise UserError(
            f"Expected '{run_id}' to be a run in the tracking store (got no such run): `cocn ui` shows them"
        ) from error
