"""MLflow: journal, runs, server; no other package imports it.

In: metrics, parameters and artifacts of a run. Out: MLflow runs, also after an outage.

May import: runtime, config, storage, engine.

Public names, by module:
    mlflow_models: Registered, offer_model, register_model, save_model
    mlflow_server: free_port, serve
    mlflow_store: PAGE_QUERY, Point, TrackedRun, TrackingStore, existing_store, tracking_uri
    run_logger: RunReference, Tracker
    runs: ARTIFACTS, Earlier, JOURNALS, ParentRun, Run, STAGE_PREFIX, config_digest, flatten, start_child,
        start_parent, sync
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.tracking.mlflow_models import offer_model

__all__ = ["offer_model"]


def __getattr__(name: str) -> object:
    """Find `offer_model`, which models logged before this package had modules import from here."""
    if name != "offer_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.tracking.mlflow_models import offer_model

    return offer_model
