"""The stages from a raw graph to a compared result, in the order of the data.

    raw graph  ── ingest ──────▶  store: graph, features, labels, splits
    store      ── positions ───▶  distance profiles, positions
    positions  ── orders ──────▶  one order per head
    store      ── features ────▶  input blocks
    orders     ── segments ────▶  shards of records, streamed as mini-batches
    settings   ── models ──────▶  network
    all these  ── training ────▶  checkpoints, and runs in MLflow by way of tracking
    checkpoint ── prediction ──▶  predictions
    runs       ── comparison ──▶  table and report

README.md beside this file has the rooms below and above these, and what our words mean.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.ingest.pyg import from_pyg, to_pyg

__all__ = ["from_pyg", "to_pyg"]


def __getattr__(name: str) -> Any:
    # Imported on first use: reading a configuration must not import Arrow, numba or torch.
    if name in __all__:
        from pipeline.ingest import pyg

        return getattr(pyg, name)
    raise AttributeError(f"module 'pipeline' has no attribute '{name}'")
