"""`python -m jobs.compare CONFIG`: compare the trainings of an experiment, as a job on a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import run_job, say

if TYPE_CHECKING:
    from pipeline.comparison.statistics import Comparison
    from pipeline.config.loading import Config

REPORT = "report.html"


def main(arguments: Sequence[str]) -> int:
    """Compare the runs of the experiment and write `report.html` to the storage, or else the output."""
    return run_job("jobs.compare", arguments, compare_configured)


def compare_configured(config: "Config") -> "Comparison":
    """Compare all trainings of the experiment."""
    from pipeline.comparison.history import select_trainings
    from pipeline.comparison.publication import publish_report
    from pipeline.comparison.statistics import compare
    from pipeline.storage.object_store import Remote, local_file
    from pipeline.tracking.mlflow_store import existing_store

    store = existing_store(config.tracking.uri, config.output)
    selection = select_trainings(store, config.tracking.experiment)
    comparison = compare(selection)
    place = config.output if config.storage.uri is None else Remote(config.storage.uri, config.storage)
    with local_file(place / REPORT) as file:
        publish_report(file, store, selection, comparison)
    for sentence in comparison.sentences:
        say(sentence)
    say(f"report: {place / REPORT}")
    return comparison


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
