"""How long the stages of a store took."""

from collections.abc import Iterable

from pipeline.store.graph_store import GraphStore


def stage_seconds(store: GraphStore, stages: Iterable[str]) -> dict[str, float]:
    """Seconds that stages of a store, and those that they were built on, took."""
    entries, timings = store.manifest.stages, store.timings()
    waiting, found = list(stages), dict[str, float]()
    while waiting:
        stage = waiting.pop()
        if stage in found or stage not in timings:
            continue
        found[stage] = timings[stage].seconds
        waiting += entries[stage].requires if stage in entries else ()
    return found
