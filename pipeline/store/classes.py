"""What the classes of a store are called."""

from pipeline.store.arrays import CLASSES_FILE
from pipeline.store.graph_store import GraphStore


def class_names(store: GraphStore) -> tuple[str, ...] | None:
    """The source's own names of the classes, or None where they are 0…C−1."""
    if CLASSES_FILE not in store.manifest.files:
        return None
    return tuple(store.table(CLASSES_FILE).column("name").to_pylist())
