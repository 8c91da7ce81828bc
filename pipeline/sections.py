"""The sections of the configuration; `pipeline.config` reads them from YAML and flags."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values never change after reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataConfig(Section):
    """Which graph, which split of it, and where its files lie."""

    source: str = "minesweeper"
    """The name of a data set, or the path of a graph to ingest."""
    data_root: Path | None = None
    """Directory with the raw files of benchmark data sets; generated graphs need none."""
    store: Path | None = None
    """Directory of the graph store; by default one per source and parameters under the working directory."""
    split: Natural = 0
    """Which of the data set's splits into training, validation and test nodes."""
    seed: Natural = 0
    """Seed of generated graphs and of generated splits."""
    side: Annotated[int, Field(ge=2)] = 100
    """Side of the minesweeper grid; the graph has side × side nodes."""


class PositionConfig(Section):
    """How the static positions of the nodes are pre-computed."""

    truncate: Count = 4
    """Distances beyond this many hops count as one hop more than it."""
    depth: Literal["truncated", "full"] = "truncated"
    """`full` searches until every reachable node is found."""
    landmarks: Count | None = None
    """Number of random sources; None takes every node as a source."""
    order: Literal["profile", "lappe", "rwpe", "rcm"] = "profile"
    """Distance profile, Laplacian eigenvectors, random walks or reverse Cuthill–McKee."""
    batch_sources: Count = 512
    """Sources that share one sweep over the graph; one batch is one Ray task."""
    refinements: Natural = 1
    """How often the linear system is solved again with the exact product of distances and positions."""
    seed: Natural = 0
    """Seed of the landmarks."""


class SegmentConfig(Section):
    """How sequences are cut into segments and written to shards."""

    length: Annotated[int, Field(ge=2)] = 8
    """Nodes in a segment (b in the paper)."""
    heads: Count = 8
    """Number of sequences, one a head."""
    shard_rows: Count = 65536
    """Records in a shard file."""
    seed: Natural = 0
    """Seed of the random directions that give the heads different orders."""


class ModelConfig(Section):
    """Which member of the family, and its size."""

    name: Literal["vanilla", "expanded", "sparse", "segment"] = "segment"
    """The model family's member."""
    hidden_channels: Count = 64
    """Width of every layer."""
    heads: Count = 8
    """Number of permutations (m in the paper)."""
    kernel_size: Count = 5
    """Nodes a diagonal convolution reads at once (k in the paper)."""
    tau: Positive = 1.0
    """Sharpness of the relaxed permutation (τ in the paper)."""
    smoothness: Natural = 2
    """How often features are propagated to give positions (t in the paper)."""
    unit_layers: Natural = 1
    """Layers of step one (L1 in the paper)."""
    pool_layers: Natural = 1
    """Layers that shorten the sequence (L2 in the paper)."""
    pool_step: Annotated[int, Field(ge=2)] = 2
    """Step of the pooling layers (s in the paper)."""
    final_layer: bool = True
    """One more layer of step one after the pooling layers."""
    inception_kernels: tuple[Count, ...] = ()
    """Kernel sizes of parallel convolutions; empty for a single one of `kernel_size`."""
    residual: bool = True
    """Add the averaged input of a layer to its output."""
    dropout: Fraction = 0.2
    """Share of activations dropped in training."""
    node_features: bool = True
    """Read the nodes' own features."""
    propagated_features: bool = True
    """Append the features averaged over the neighbours; results with and without it are rows of their own."""
    structure_features: bool = True
    """Read the edges inside a window."""
    positions: Literal["explicit", "implicit", "both"] = "explicit"
    """What orders the nodes: their features, their place in the graph, or half of the heads each."""
    propagation: Literal["after", "before"] = "after"
    """Propagate after the MLP, as the paper does, or the features before it, once, into the store."""
    self_loops: bool = True
    """Add self-loops to the graph that propagates positions."""
    ranking: Literal["auto", "pairwise", "taylor"] = "auto"
    """Backward of the ranks; `auto` takes the pairwise one for windows and small graphs."""


class TrainConfig(Section):
    """The training loop."""

    epochs: Count = 50
    """Passes over the training nodes."""
    batch_size: Count = 512
    """Records in a batch, over all workers; full-graph models ignore it."""
    learning_rate: Positive = 1e-3
    """Learning rate of AdamW at its peak."""
    weight_decay: NonNegative = 1e-5
    """Weight decay of AdamW."""
    patience: Natural = 0
    """Epochs without a better validation metric before training stops; 0 never stops early."""
    seed: Natural = 0
    """Seed of the parameters, the shuffling and dropout."""
    clip: NonNegative = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    time_budget: Positive | None = None
    """Seconds after which training ends with the epoch it is in."""
    validate_every: Count = 1
    """Epochs between two validations."""
    checkpoint_every: Natural = 0
    """Epochs between two checkpoints; 0 writes only the best and the last."""


class ResourceConfig(Section):
    """What the run may use; never changes a result beyond rounding."""

    workers: Count = 1
    """Processes that train together."""
    cpus_per_worker: Count = 1
    """Cores, and threads, of each worker."""
    gpus_per_worker: NonNegative = 0
    """GPUs of each worker."""


class TrackingConfig(Section):
    """Where runs are recorded."""

    uri: str | None = None
    """MLflow tracking URI; by default MLFLOW_TRACKING_URI, else the file `mlflow.db` under `output`."""
    experiment: str = "cocn"
    """Name of the MLflow experiment."""


class Config(Section):
    """Everything that decides a run."""

    data: DataConfig = DataConfig()
    """The graph."""
    positions: PositionConfig = PositionConfig()
    """Pre-computed positions."""
    segments: SegmentConfig = SegmentConfig()
    """Segments and shards."""
    model: ModelConfig = ModelConfig()
    """The network."""
    train: TrainConfig = TrainConfig()
    """The training loop."""
    resources: ResourceConfig = ResourceConfig()
    """Workers, cores and GPUs."""
    tracking: TrackingConfig = TrackingConfig()
    """MLflow."""
    output: Path = Path("runs")
    """Directory that holds everything a run writes."""

    @model_validator(mode="after")
    def _heads_agree(self) -> "Config":
        if self.model.name == "segment" and self.model.heads != self.segments.heads:
            raise ValueError(
                f"Expected 'model.heads' to equal 'segments.heads', {self.segments.heads} "
                f"(got {self.model.heads})"
            )
        return self
