"""`python -m jobs.train CONFIG`: one training, as a job on a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import announce, run_job, say

if TYPE_CHECKING:
    from pydantic import BaseModel

    from pipeline.config.loading import Config


def main(arguments: Sequence[str]) -> int:
    """Train the model of a configuration file; finished stages and epochs are not repeated."""
    return run_job("jobs.train", arguments, train_configured)


def train_configured(config: "Config") -> "BaseModel":
    """Train the configured model on its split with its seed."""
    from pipeline.tracking.runs import start_parent
    from pipeline.training.campaign import vary
    from pipeline.training.launch import train
    from pipeline.training.preflight import check_places, check_settings
    from pipeline.training.prepare import open_prepared

    check_settings([config])
    check_places(config)
    store = open_prepared(config, say=say)
    with start_parent("train", config) as parent:
        announce(parent)
        varied = vary(config, config.model.name, config.data.split, config.train.seed, store)
        return train(varied, store, parent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
