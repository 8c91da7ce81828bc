"""MLflow and nothing but MLflow: journal, runs, server.

In: metrics, parameters and artifacts of a run. Out: MLflow runs, also after an outage.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.tracking.mlflow_store import offer_model

__all__ = ["offer_model"]


def __getattr__(name: str) -> object:
    """Find `offer_model`, which models that were logged before this package had modules import from it."""
    if name != "offer_model":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.tracking.mlflow_store import offer_model

    return offer_model
