"""`python -m jobs.compare CONFIG`: compare the trainings of an experiment as a job of a cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.entry import run_job, say

if TYPE_CHECKING:
    from pipeline.comparison import Comparison
    from pipeline.config import Config

REPORT = "report.html"


def main(arguments: Sequence[str]) -> int:
    """Compare what the experiment holds and write `report.html` under the storage, or else the output."""
    return run_job("jobs.compare", arguments, compare_configured)


def compare_configured(config: "Config") -> "Comparison":
    """Compare all trainings of the experiment."""
    from pipeline.comparison import compare
    from pipeline.publication import publish_report
    from pipeline.remote import Remote, local_file
    from pipeline.tracking import existing_store
    from pipeline.trainings import select_trainings

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
