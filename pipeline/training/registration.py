"""The best of several trainings as a version of a registered model."""

from collections.abc import Sequence

from pipeline.config.loading import Config
from pipeline.runtime.errors import UserError
from pipeline.tracking.mlflow_models import Registered, register_model
from pipeline.tracking.mlflow_store import TrackingStore, tracking_uri
from pipeline.tracking.runs import ARTIFACTS
from pipeline.training.launch import read_note
from pipeline.training.results import TrainResult


def register_best(config: Config, trainings: Sequence[TrainResult], name: str, alias: str) -> Registered:
    """Register the model of the training with the best validation score; the test part plays no role.

    Raises:
        UserError: If its run has not reached the tracker, or the tracker refuses the name.
    """
    best = max(trainings, key=lambda result: result.best_val_metric)
    note = read_note(best.checkpoint.parent)
    if note is None or note.run_id is None:
        raise UserError(
            f"Expected the run of '{best.checkpoint.parent}' to have reached the tracker (got none): "
            "run `cocn track sync`, then the same command again"
        )
    uri = tracking_uri(config.tracking.uri, config.output)
    store = TrackingStore(uri, config.output.absolute() / ARTIFACTS)
    return register_model(store, note.run_id, name, alias)
