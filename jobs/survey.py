"""`python -m jobs.survey CONFIG`: what `cocn doctor --address` runs on a cluster."""

import sys
from collections.abc import Sequence

from jobs.entry import run_job


def main(arguments: Sequence[str]) -> int:
    """Collect versions, GPUs and storage from every node of the cluster."""
    from pipeline.cluster.survey import survey_cluster

    return run_job("jobs.survey", arguments, survey_cluster)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
