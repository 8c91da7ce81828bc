"""Which input blocks a model reads of a store, and how the missing ones are written."""

from collections.abc import Sequence

from pipeline.features.averages import Direction, write_average
from pipeline.features.blocks import Scale, open_block
from pipeline.features.neighbour_labels import block_name as labels_block
from pipeline.features.neighbour_labels import has_labels, write_neighbour_labels
from pipeline.features.own import OWN, PROJECTED, is_wide, needs_projection, write_own, write_projection
from pipeline.features.structure import STRUCTURE, write_structure
from pipeline.store.graph_store import GraphStore

#: Hops of averages over neighbours that streaming models read.
HOPS = 3
#: A graph is tiny from this many features per training node on.
TINY_RATIO = 8


def streaming_blocks(store: GraphStore, split: int, *, labels: bool = True) -> tuple[str, ...]:
    """Blocks for models that read only a record's own rows, so that hops are averaged beforehand."""
    averages = []
    if store.manifest.num_features and not is_tiny(store, split):
        averages = [f"mean-{hop}" for hop in range(1, 1 + HOPS)]
        averages += ["out-1", "in-1"] if store.csr().ways is not None else []
    return (*_first(store), *averages, STRUCTURE, *_labels(store, split, labels))


def hop_blocks(store: GraphStore, split: int, hops: int, *, labels: bool = True) -> tuple[str, ...]:
    """Blocks for a perceptron on averages hop by hop, which needs no positions."""
    averages = []
    if store.manifest.num_features:
        averages = [f"mean-{hop}" for hop in range(1, 1 + hops)]
        averages += ["out-1", "in-1"] if store.csr().ways is not None else []
    return (*_first(store), *averages, *_labels(store, split, labels))


def graph_blocks(store: GraphStore, split: int, *, labels: bool = True) -> tuple[str, ...]:
    """Blocks for models that average over neighbours themselves."""
    return (*_first(store), STRUCTURE, *_labels(store, split, labels))


def is_tiny(store: GraphStore, split: int) -> bool:
    """Whether there are so few training nodes that a model should read little."""
    return store.manifest.num_features > TINY_RATIO * count_training_nodes(store, split)


def count_training_nodes(store: GraphStore, split: int) -> int:
    """Training nodes of a split; all nodes where there are no splits."""
    return int((store.split(split) == 0).sum()) if store.num_splits else store.num_nodes


def window_block(store: GraphStore) -> str:
    """The block that windows read of their nodes; never classes of neighbours, or a node's own might
    return."""
    return averaged_block(store) if store.manifest.num_features else STRUCTURE


def averaged_block(store: GraphStore) -> str:
    """The block from which averages over neighbours are computed."""
    return PROJECTED if needs_projection(store) else OWN


def is_private(block: str) -> bool:
    """Whether only the node itself may read a block."""
    return block.startswith("labels-")


def block_widths(store: GraphStore, blocks: Sequence[str]) -> dict[str, int]:
    """Columns of each block."""
    return {block: open_block(store, block).shape[1] for block in blocks}


def write_blocks(store: GraphStore, blocks: Sequence[str], *, replace: bool = False) -> None:
    """Write the missing blocks, and those that they are computed from."""
    # Columns of averages over few words are almost always zero, like the words themselves.
    scale: Scale = "whole" if is_wide(store) else "columns"
    for block in blocks:
        kind, _, number = block.partition("-")
        if block == OWN:
            write_own(store, replace=replace)
        elif block == PROJECTED:
            write_own(store, replace=replace)
            write_projection(store, replace=replace)
        elif block == STRUCTURE:
            write_structure(store, replace=replace)
        elif kind == "labels":
            write_neighbour_labels(store, int(number), replace=replace)
        else:
            write_blocks(store, [averaged_block(store)], replace=replace)
            for hop in range(1, 1 + int(number)):
                write_average(store, _direction(kind), hop, averaged_block(store), scale, replace=replace)


def _direction(kind: str) -> Direction:
    directions: dict[str, Direction] = {"mean": "mean", "out": "out", "in": "in"}
    return directions[kind]


def _first(store: GraphStore) -> tuple[str, ...]:
    return (OWN,) if store.manifest.num_features else ()


def _labels(store: GraphStore, split: int, wanted: bool) -> tuple[str, ...]:
    return (labels_block(split),) if wanted and has_labels(store) else ()
