"""The opponents by name: how each is built and what it reads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pipeline.config.settings import ModelConfig
from pipeline.models.opponents.base import Opponent
from pipeline.models.opponents.convolutional import ConvolutionalOpponent
from pipeline.models.opponents.linkx import LINKX
from pipeline.models.opponents.perceptrons import MLP, SGC, SIGN
from pipeline.models.opponents.transformers import Polynormer, SGFormer
from pipeline.store.arrays import Task

#: Only rows; the whole graph in every step; or, if the graph is large, neighbourhoods sampled around rows.
Reads = Literal["rows", "graph", "samples"]
#: Number of columns that replace features if a graph has none: ones and logarithms of degrees.
STAND_IN_COLUMNS = 2


@dataclass(frozen=True)
class Sizes:
    """What determines the shape of a network, in addition to its settings."""

    num_features: int
    out_channels: int
    num_nodes: int
    task: Task
    directed: bool
    stored_blocks: tuple[tuple[str, int], ...] = ()
    """Name and columns of the input blocks of a store."""


@dataclass(frozen=True)
class Entry:
    """An opponent.

    Attributes:
        title: its usual name.
        reads: what a step reads of a single graph.
        build: builds the network.
        collections: whether it reads the graphs of a collection.
    """

    title: str
    reads: Reads
    build: Callable[[ModelConfig, Sizes], Opponent]
    collections: bool = True


def _plain(
    kind: Callable[[ModelConfig, int, int, Task], Opponent],
) -> Callable[[ModelConfig, Sizes], Opponent]:
    return lambda settings, sizes: kind(settings, sizes.num_features, sizes.out_channels, sizes.task)


def _build_sign(settings: ModelConfig, sizes: Sizes) -> Opponent:
    return SIGN(
        settings,
        sizes.num_features,
        sizes.out_channels,
        sizes.task,
        directed=sizes.directed,
        stored=dict(sizes.stored_blocks),
    )


def _build_linkx(settings: ModelConfig, sizes: Sizes) -> Opponent:
    return LINKX(settings, sizes.num_features, sizes.out_channels, sizes.task, num_nodes=sizes.num_nodes)


OPPONENTS: dict[str, Entry] = {
    "mlp": Entry("MLP", "rows", _plain(MLP)),
    "sgc": Entry("SGC", "rows", _plain(SGC)),
    "sign": Entry("SIGN", "rows", _build_sign),
    "linkx": Entry("LINKX", "rows", _build_linkx, collections=False),
    "gcn": Entry("GCN", "graph", _plain(ConvolutionalOpponent)),
    "sage": Entry("GraphSAGE", "samples", _plain(ConvolutionalOpponent)),
    "gat": Entry("GAT", "graph", _plain(ConvolutionalOpponent)),
    "gin": Entry("GIN", "graph", _plain(ConvolutionalOpponent)),
    "dirgnn": Entry("Dir-GNN", "graph", _plain(ConvolutionalOpponent)),
    "sgformer": Entry("SGFormer", "graph", _plain(SGFormer)),
    "polynormer": Entry("Polynormer", "graph", _plain(Polynormer)),
}


def build_opponent(settings: ModelConfig, sizes: Sizes) -> Opponent:
    """The opponent that `settings` name, with newly initialised parameters."""
    return OPPONENTS[settings.name].build(settings, sizes)
