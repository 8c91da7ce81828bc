"""The report of a comparison: written to a file, and kept with the runs it compares."""

import logging
from pathlib import Path

from pipeline.comparison.history import Selection
from pipeline.comparison.model_figures import figures_for
from pipeline.comparison.report import LOCAL_ADDRESS, write_report
from pipeline.comparison.statistics import Comparison
from pipeline.runtime.passwords import hide_passwords
from pipeline.tracking.mlflow_store import TrackingStore

logger = logging.getLogger(__name__)


def publish_report(
    path: Path, store: TrackingStore, selection: Selection, comparison: Comparison
) -> str | None:
    """Write the report and log it as an artifact of the newest command whose trainings it compares.

    Args:
        path: The HTML file.
        store: Where the runs are.
        selection: The trainings.
        comparison: What they show.

    Returns:
        Id of the run that keeps the report; None if there is none, or the tracker did not accept it.
    """
    address = store.web_address or LOCAL_ADDRESS
    write_report(path, comparison, selection, figures=figures_for(selection), tracking_url=address)
    parent = max(selection.trainings, key=lambda training: training.start).parent_id
    if parent is None:
        return None
    try:
        store.send_artifact(parent, path, None)
    except Exception as error:  # noqa: BLE001 - the file is written, whatever the tracker says
        logger.warning("the report could not be kept with run %s: %s", parent, hide_passwords(str(error)))
        return None
    return parent
