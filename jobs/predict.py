"""`python -m jobs.predict CONFIG`: predict with a configuration's trained model, as a job on a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import run_job, say

if TYPE_CHECKING:
    from pipeline.config.loading import Config
    from pipeline.prediction.inference import Prediction

PREDICTIONS = "predictions"


def main(arguments: Sequence[str]) -> int:
    """Predict every node with the best checkpoint of the training that the configuration describes."""
    return run_job("jobs.predict", arguments, predict_configured)


def predict_configured(config: "Config") -> "Prediction":
    """Write `predictions/<training>.parquet` to the configuration's storage, or else its output."""
    from pipeline.prediction.inference import predict
    from pipeline.storage.object_store import Remote
    from pipeline.training.campaign import vary
    from pipeline.training.launch import training_directory, training_mirror
    from pipeline.training.prepare import open_prepared
    from pipeline.training.remote_copy import open_checkpoint

    store = open_prepared(config, say=say)
    varied = vary(config, config.model.name, config.data.split, config.train.seed, store)
    training = training_directory(varied, store)
    name = f"{training.name}.parquet"
    mirror = training_mirror(config, training.name)
    if mirror is None:
        return predict(open_checkpoint(training), store, config.output / PREDICTIONS / name)
    best = mirror / open_checkpoint(mirror).name
    return predict(best, store, Remote(mirror.root, config.storage) / PREDICTIONS / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
