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
    """Write `predictions/<training>.parquet` under the configuration's output."""
    from pipeline.campaign import vary
    from pipeline.checkpoint import find_checkpoint
    from pipeline.launch import training_directory
    from pipeline.predict import predict
    from pipeline.prepare import open_prepared

    store = open_prepared(config, say=say)
    training = training_directory(
        vary(config, config.model.name, config.data.split, config.train.seed), store
    )
    out = config.output / PREDICTIONS / f"{training.name}.parquet"
    out.parent.mkdir(parents=True, exist_ok=True)
    return predict(find_checkpoint(training), store, out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
