"""What a model needs of a store, resolved once and passed on: how it reads it, and which stages."""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.loading import Config
from pipeline.features.arrangement import STAGE as ARRANGEMENT
from pipeline.features.blocks import stage_name as block_stage
from pipeline.features.propagation import stage_name as propagated_stage
from pipeline.features.selection import window_block
from pipeline.features.structure import STRUCTURE
from pipeline.models.networks import block_names, position_source, reads_blocks, resolve_task, streams
from pipeline.positions.stage import STAGE as POSITIONS
from pipeline.segments.stage import stage_name as segments_stage
from pipeline.storage.files import text_sha256
from pipeline.store.arrays import Task
from pipeline.store.graph_store import INGEST, GraphStore
from pipeline.training.hidden_links import stage_name as links_stage

#: Mini-batches of the graphs of a collection, mini-batches of the segments of one graph, one whole graph, or
#: one whole graph without the links to predict.
Reading = Literal["graphs", "segments", "graph", "links"]


@dataclass(frozen=True)
class Needs:
    """What a model reads of a store.

    Attributes:
        task: what is predicted for: nodes, graphs, or pairs of nodes.
        reading: how the store is read.
        positions: what orders the nodes: positions learned from features (`explicit`), positions learned from
            the structure (`implicit`), or the store's own order (`fixed`).
        feature_hops: propagated features read from the store, in addition to the plain ones.
        position_hops: hops of the propagated features that segments regress positions from; 0 for none.
        stages: the stages that a training reads, by name.
        blocks: input blocks that the model reads; empty for most opponents and for the paper's models.
        window_block: the block that its windows read of their nodes, if they stream.
    """

    task: Task
    reading: Reading
    positions: str
    feature_hops: int
    position_hops: int
    stages: tuple[str, ...]
    blocks: tuple[str, ...] = ()
    window_block: str | None = None

    @property
    def all_blocks(self) -> tuple[str, ...]:
        """Every block that is read, by records and by windows."""
        return self.blocks if self.window_block is None else (*self.blocks, self.window_block)

    @property
    def reads_whole_graph(self) -> bool:
        """Whether every step reads the whole graph, so that workers divide heads instead of rows."""
        return self.reading in ("graph", "links")

    @property
    def reads_shards(self) -> bool:
        """Whether segments come from the store instead of an order that is being learned."""
        return self.reading == "segments" and self.positions == "fixed"

    @property
    def precomputed_positions(self) -> bool:
        """Whether the order of the nodes, or what it is learned from, is first computed into the store."""
        if self.blocks:
            return STRUCTURE in self.blocks
        return self.reading in ("segments", "graph") and self.positions != "explicit"

    @property
    def propagated_steps(self) -> int:
        """How many times features must have been propagated into the store."""
        return max(self.feature_hops, self.position_hops)


def resolve_needs(config: Config, store: GraphStore) -> Needs:
    """What the model of a configuration needs of a store.

    Raises:
        UserError: if the store, or the model, does not support the requested task.
    """
    model, split = config.model, config.data.split
    task, positions = resolve_task(config, store), position_source(model)
    reading = _reading(config, store, task)
    if reads_blocks(model, task):
        return _block_needs(config, store, reading)
    stages, feature_hops, position_hops = {INGEST}, 0, 0
    if reading == "graphs":
        stages.add(ARRANGEMENT)
    elif reading == "links":
        stages.add(links_stage(split))
    elif reading == "segments":
        feature_hops = model.propagated_features
        position_hops = model.smoothness if positions == "explicit" else 0
        stages |= {propagated_stage(hop) for hop in (*range(1, 1 + feature_hops), position_hops) if hop}
        if positions != "explicit":
            stages.add(segments_stage(split) if positions == "fixed" else POSITIONS)
    elif positions != "explicit":
        stages.add(POSITIONS)
    return Needs(task, reading, positions, feature_hops, position_hops, tuple(sorted(stages)))


def _block_needs(config: Config, store: GraphStore, reading: Reading) -> Needs:
    """Input blocks and, for streaming models, the shards, whose records are read even without windows."""
    blocks = block_names(store, config)
    reads_windows = config.model.windows and config.model.name != "sparse"
    window = window_block(store) if reads_windows else None
    stages = {INGEST, *(block_stage(block) for block in blocks)}
    if window is not None:
        stages.add(block_stage(window))
    if reading == "segments":
        stages.add(segments_stage(config.data.split))
    return Needs("node", reading, "fixed", 0, 0, tuple(sorted(stages)), blocks, window)


def input_digest(store: GraphStore, config: Config) -> str:
    """Identifies what a training reads; stages that it does not read may change."""
    stages = [stage for stage in resolve_needs(config, store).stages if store.has(stage)]
    return text_sha256({stage: store.manifest.stage_digest(stage) for stage in stages})


def _reading(config: Config, store: GraphStore, task: Task) -> Reading:
    if store.is_collection:
        return "graphs"
    if task == "link":
        return "links"
    return "segments" if streams(config.model) else "graph"
