"""A training as it is passed from the driver to its workers."""

from dataclasses import dataclass
from pathlib import Path

from pipeline.config.loading import Config
from pipeline.storage.object_store import Remote
from pipeline.tracking.run_logger import RunReference
from pipeline.training.remote_copy import push


@dataclass(frozen=True)
class TrainJob:
    """Everything a worker needs to train.

    Attributes:
        config: the resolved configuration.
        store: the graph store.
        directory: where checkpoints, epochs and the result go; the same job continues there.
        tracking: the MLflow run that rank 0 logs to.
        mirror: where the directory is copied to, and restored from on every node.
    """

    config: Config
    store: Path | Remote
    directory: Path
    tracking: RunReference | None = None
    mirror: Remote | None = None

    def publish(self) -> None:
        """Copy the directory's content to its mirror."""
        if self.mirror is not None:
            push(self.directory, self.mirror)
