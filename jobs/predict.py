"""`python -m jobs.predict CONFIG`: predictions of a configuration's trained model as a job of a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import run_job, say

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.predict import Prediction

PREDICTIONS = "predictions"


def main(arguments: Sequence[str]) -> int:
    """Predict every node with the best checkpoint of the training that the configuration describes."""
    return run_job("jobs.predict", arguments, predict_configured)


def predict_configured(config: "Config") -> "Prediction":
    """Write `predictions/<training>.parquet` under the configuration's storage, or else its output."""
    from pipeline.campaign import vary
    from pipeline.launch import training_directory, training_mirror
    from pipeline.mirror import open_checkpoint
    from pipeline.predict import predict
    from pipeline.prepare import open_prepared
    from pipeline.remote import Remote

    store = open_prepared(config, say=say)
    training = training_directory(
        vary(config, config.model.name, config.data.split, config.train.seed), store
    )
    name = f"{training.name}.parquet"
    mirror = training_mirror(config, training.name)
    if mirror is None:
        return predict(open_checkpoint(training), store, config.output / PREDICTIONS / name)
    best = mirror / open_checkpoint(mirror).name
    return predict(best, store, Remote(mirror.root, config.storage) / PREDICTIONS / name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
