"""`python -m jobs.preprocess CONFIG`: preprocess a graph, as a job on a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import run_job, say

if TYPE_CHECKING:
    from pipeline.config.loading import Config
    from pipeline.training.prepare import Prepared


def main(arguments: Sequence[str]) -> int:
    """Prepare the graph of a configuration file; the last line of output is the result as JSON."""
    return run_job("jobs.preprocess", arguments, prepare_configured)


def prepare_configured(config: "Config") -> "Prepared":
    """Run every stage of the configured graph that is not done yet."""
    from pipeline.ingest.stage import options_from
    from pipeline.training.preflight import check_places, require_source
    from pipeline.training.prepare import prepare

    require_source(config.data)
    check_places(config)
    return prepare(config, options_from(config.data), say=say)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
