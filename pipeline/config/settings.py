"""The sections of the configuration; `pipeline.config.loading` reads them from YAML and flags."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from pipeline.config.bounds import (
    MOST_WORKERS,
    BatchSize,
    Cores,
    Epochs,
    Fraction,
    Gibibytes,
    Gpus,
    GraphCount,
    Heads,
    Hops,
    Kernel,
    Layers,
    Natural,
    Negatives,
    Neighbours,
    NodeCount,
    NonNegative,
    Positive,
    PositiveSeconds,
    Refinements,
    Repetitions,
    Seconds,
    Seed,
    SegmentLength,
    ShardRows,
    Side,
    Sources,
    SplitNumber,
    Steps,
    Width,
    at_most,
)
from pipeline.config.locations import Place, RemotePlace
from pipeline.config.marks import decides
from pipeline.config.opponent_settings import OpponentConfig
from pipeline.config.section import Section


def _parse_workers(value: object) -> int | str:
    """A number of workers, or a range of them as `least..most`."""
    least, dots, most = str(value).partition("..")
    ends = (least, most if dots else least)
    if not all(end.isdecimal() and int(end) > 0 for end in ends) or int(ends[0]) > int(ends[1]):
        raise ValueError("Input should be a number of workers, or a range such as 2..8")
    if int(ends[1]) > MOST_WORKERS:
        raise ValueError(f"Input should be at most {MOST_WORKERS:,} workers, as each is a process")
    return int(least) if ends[0] == ends[1] else f"{int(least)}..{int(most)}"


Workers = Annotated[
    int | str,
    PlainValidator(_parse_workers),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^\d+\.\.\d+$"}]}
    ),
]


ModelName = Literal[
    "vanilla",
    "expanded",
    "sparse",
    "segment",
    "mlp",
    "sgc",
    "sign",
    "linkx",
    "gcn",
    "sage",
    "gat",
    "gin",
    "dirgnn",
    "sgformer",
    "polynormer",
]
MetricName = Literal[
    "accuracy",
    "roc_auc",
    "macro_f1",
    "average_precision",
    "mrr",
    "hits_1",
    "hits_3",
    "hits_10",
    "hits_50",
    "hits_100",
    "micro_f1",
    "r2",
    "spearman",
]


class SourceOptions(Section):
    """Where a graph comes from and how it is read."""

    source: str = decides("store", "minesweeper")
    """The name of a dataset, or the path of a graph to ingest."""
    data_root: Path | None = decides("nothing", None)
    """Directory with the raw files of benchmark datasets; generated graphs need none."""
    seed: Seed = decides("store", 0)
    """Seed for generated graphs and generated splits."""
    side: Side = decides("store", 100)
    """Side of the minesweeper grid; the graph has side × side nodes."""
    num_nodes: NodeCount | None = decides("store", None)
    """Nodes of a generated power-law graph, or of an edge list whose last nodes have no edges."""
    num_graphs: GraphCount = decides("store", 300)
    """Number of graphs in the generated collection `motifs`."""
    features: Path | None = decides("store", None)
    """Features of the nodes of an edge list: .npy, .npz, .csv, .tsv or .parquet."""
    labels: Path | None = decides("store", None)
    """Classes of the nodes of an edge list, in the same formats."""
    source_column: str | None = decides("store", None)
    """Column of an edge list with the start of each edge; by default the first."""
    target_column: str | None = decides("store", None)
    """Column of an edge list with the end of each edge; by default the second."""
    id_column: str | None = decides("store", None)
    """Column of the node tables with the ids that edges use; by default `id` if present, else row numbers."""
    label_column: str | None = decides("store", None)
    """Column of the node tables with the class; by default `label`. Several, separated by commas, where
    `answer` is labels or values."""
    answer: Literal["classes", "labels", "values"] = decides("store", "classes")
    """What the label column holds: one of several classes; labels, 0 or 1, in several columns; or numbers to
    regress, in one or several columns."""
    split_column: str | None = decides("store", None)
    """Column of the node tables with train, val or test; by default `split` if present."""
    weight_column: str | None = decides("store", None)
    """Column of an edge list with a number per edge, or several separated by commas; by default `weight` if
    present."""
    directed: bool | Literal["auto"] = decides("store", "auto")
    """Whether edges have a direction. `auto` keeps the source's direction next to the undirected graph, so
    that features of in- and out-neighbours can differ; `true` also gives it to the windows; distances ignore
    it."""
    num_splits: Repetitions = decides("store", 10)
    """Random splits generated for graphs without any, or folds of a collection's cross-validation."""
    train_share: Annotated[float, Field(gt=0, lt=1)] = decides("store", 0.5)
    """Share of training nodes in random splits."""
    validation_share: Fraction = decides("store", 0.25)
    """Share of validation nodes in random splits; the rest are test nodes."""

    @model_validator(mode="after")
    def _leave_test_nodes(self) -> Self:
        if self.train_share + self.validation_share > 1:
            raise ValueError(
                "Expected 'data.train_share' and 'data.validation_share' to add up to at most 1 "
                f"(got {self.train_share:g} and {self.validation_share:g})"
            )
        return self


class DataConfig(SourceOptions):
    """Which graph, which split of it, what to predict, and where its store is."""

    store: Place | None = decides("nothing", None)
    """Directory or URI (s3://, gs://) of the graph store; by default one per source and parameters under
    `output`."""
    split: SplitNumber = decides("inputs", 0, repeats=True)
    """Which of the dataset's splits into training, validation and test nodes."""
    task: Literal["auto", "node", "graph", "link"] = decides("weights", "auto")
    """What to predict; `auto` is what the store has labels for, and `link` hides edges of a single graph."""
    protocol: Literal["holdout", "gin"] = decides("weights", "holdout")
    """How a fold of a collection is tested: `holdout` selects the epoch on another fold; `gin`, as published,
    trains on that fold too and selects on the test part, which scores higher than a new graph would."""
    link_validation_share: Annotated[float, Field(gt=0, lt=1)] = decides("inputs", 0.05)
    """Share of a graph's edges hidden for validation in link prediction."""
    link_test_share: Annotated[float, Field(gt=0, lt=1)] = decides("inputs", 0.1)
    """Share of a graph's edges hidden for testing in link prediction."""
    link_negatives: Negatives = decides("inputs", 1)
    """Pairs without an edge per hidden edge; all hidden edges of a part are ranked against all of them."""

    @model_validator(mode="after")
    def _leave_edges(self) -> Self:
        if self.link_validation_share + self.link_test_share >= 1:
            raise ValueError(
                "Expected 'data.link_validation_share' and 'data.link_test_share' to add up to less than 1 "
                f"(got {self.link_validation_share:g} and {self.link_test_share:g})"
            )
        return self


class PositionConfig(Section):
    """How the static positions of the nodes are precomputed."""

    truncate: Hops = decides("inputs", 4)
    """Longer distances, in hops, count as this value plus one. The order hardly suffers where most nodes are
    within reach (Spearman correlation with the full one 0.997 on Chameleon and Actor), but it does where
    paths are long (0.86 on a small-world graph of diameter 12): raise this or use `depth: full` there."""
    depth: Literal["truncated", "full"] = decides("inputs", "truncated")
    """`full` searches until every reachable node is found."""
    landmarks: NodeCount | None = decides("inputs", None)
    """Number of random sources; None uses every node as a source."""
    order: Literal["window", "profile", "lappe", "rwpe", "rcm"] = decides("inputs", "window")
    """What fixed heads order nodes by: windows that cover as many edges as possible, distance profiles,
    Laplacian eigenvectors, random walks or reverse Cuthill–McKee."""
    batch_sources: Sources = decides("nothing", 512)
    """Sources that share one sweep over the graph; one batch is one Ray task."""
    refinements: Refinements = decides("inputs", 1)
    """How many times the linear system is solved again with the exact product of distances and positions."""
    seed: Seed = decides("inputs", 0)
    """Seed of the landmarks."""


class SegmentConfig(Section):
    """How sequences are cut into segments and written to shards."""

    length: SegmentLength = decides("inputs", 8)
    """Nodes in a segment (b in the paper); the store's orders try to keep the ends of an edge this close."""
    shard_rows: ShardRows = decides("inputs", 65536)
    """Records per shard file."""
    seed: Seed = decides("inputs", 0)
    """Seed of the random directions that give the heads different orders."""


class ModelConfig(Section):
    """Which member of the family, and its size."""

    name: ModelName = decides("weights", "segment")
    """A member of the CoCN family, or an opponent."""
    recipe: Literal["auto", "paper", "modern"] = decides("weights", "auto")
    """`paper` is the paper's network as printed. `modern` reads input blocks through an ego path, mixes nodes
    with their neighbours and has other defaults; `auto` is modern for nodes, paper for graphs and links."""
    mixing_blocks: Layers = decides("weights", 4)
    """Blocks of a modern full-graph model, each combining a node with its neighbours and its windows."""
    ego_layers: Layers = decides("weights", 1)
    """Residual layers of the ego path of a modern model."""
    windows: bool = decides("weights", True)
    """Read windows of the orders in addition to the ego path of a modern model."""
    neighbour_labels: bool = decides("weights", True)
    """Let a modern model read the classes of neighbours that are training nodes, never a node's own."""
    hidden_channels: Width = decides("weights", 64)
    """Width of every layer."""
    heads: Heads = decides("inputs", 8)
    """Number of permutations (m in the paper), and of the sequences that segments are cut from."""
    kernel_size: Kernel = decides("weights", 5)
    """Nodes a diagonal convolution reads at once (k in the paper)."""
    tau: Positive = decides("weights", 1.0)
    """Sharpness of the relaxed permutation (τ in the paper); not used by the sparse model."""
    smoothness: Steps = decides("weights", 2)
    """How many times features are propagated to give positions (t in the paper)."""
    unit_layers: Layers = decides("weights", 2)
    """Layers of step one (L1 in the paper)."""
    pool_layers: Layers = decides("weights", 1)
    """Layers whose step is the kernel size, which shorten the sequence (L2 in the paper)."""
    final_layer: bool = decides("weights", False)
    """One more layer of step one after the pooling layers."""
    inception_kernels: Annotated[tuple[Kernel, ...], Field(max_length=32)] = decides("weights", ())
    """Kernel sizes of parallel convolutions; empty for a single one of size `kernel_size`."""
    residual: bool = decides("weights", True)
    """Add the averaged input of a layer to its output."""
    dropout: Fraction = decides("weights", 0.2)
    """Share of activations dropped in training."""
    feature_dropout: Fraction = decides("weights", 0.0)
    """Share of input features dropped in training."""
    node_features: bool = decides("weights", True)
    """Read the nodes' own features."""
    propagated_features: Steps = decides("weights", 1)
    """How many times features are averaged over the neighbours, each time appended to the input."""
    structure_features: bool = decides("weights", True)
    """Read the edges within a window."""
    positions: Literal["auto", "explicit", "implicit", "fixed"] = decides("weights", "auto")
    """What orders the nodes: positions learned from features, positions learned from the structure, or the
    store's own order; `auto` is fixed for segments, which then stream from shards, and explicit otherwise."""
    propagation: Literal["auto", "after", "before"] = decides("weights", "auto")
    """Propagate positions after the MLP, as in the paper, or features before it, once, into the store; `auto`
    is before for segments, which then need no graph in memory, and after otherwise."""
    neighbours: Neighbours = decides("weights", 10)
    """Neighbours that `sage` samples per training node; each further hop samples half as many."""
    self_loops: bool = decides("inputs", True)
    """Add self-loops to the graph that propagates positions."""
    pooling: Literal["mean", "sum"] = decides("weights", "mean")
    """How an opponent pools the nodes of a graph; the CoCN family takes the maximum of each channel."""
    ranking: Literal["auto", "pairwise", "taylor"] = decides("weights", "auto")
    """Gradient of the ranks; `auto` uses the pairwise one for windows and small graphs."""
    opponent: OpponentConfig = OpponentConfig()
    """What only opponents read."""


class TrainConfig(Section):
    """The training loop."""

    epochs: Epochs = decides("weights", 50)
    """Passes over the training nodes."""
    batch_size: BatchSize = decides("weights", 1000)
    """Records, or graphs of a collection, per batch, over all workers; unused for steps on a whole graph."""
    learning_rate: Positive = decides("weights", 1e-3)
    """Peak learning rate."""
    optimiser: Literal["adamw", "adam"] = decides("weights", "adamw")
    """`adam` adds weight decay to the gradient, as in the paper; this shrinks the weights of rare
    features."""
    schedule: Literal["constant", "cosine"] = decides("weights", "constant")
    """How the learning rate continues after its peak: stays constant, or falls to zero along a cosine."""
    warmup_steps: Annotated[Natural, at_most(1e12, "no training has more steps")] = decides("weights", 0)
    """Optimiser steps over which the learning rate rises to its peak."""
    weight_decay: NonNegative = decides("weights", 1e-5)
    """Weight decay."""
    label_smoothing: Fraction = decides("weights", 0.0)
    """Share of the target that is spread over all classes; used by CoCN models on single graphs."""
    class_weights: bool = decides("weights", False)
    """Weigh each class by the inverse of its share of the training nodes."""
    metric: Literal["auto", MetricName] = decides("weights", "auto")
    """What selects the best epoch and is compared; `auto` is accuracy for graphs, mrr for links and, for
    nodes, roc_auc with two classes and accuracy with more."""
    patience: Annotated[Natural, at_most(1e8, "no training has more epochs")] = decides("weights", 0)
    """Epochs without progress before training stops; 0 never stops early."""
    patience_on: Literal["loss", "metric"] = decides("weights", "loss")
    """What counts as progress: a lower validation loss, or a better validation metric."""
    seed: Seed = decides("weights", 0, repeats=True)
    """Seed of the parameters, the shuffling and dropout."""
    clip: NonNegative = decides("weights", 1.0)
    """Largest gradient norm; 0 disables clipping."""
    time_budget: PositiveSeconds | None = decides("weights", None, extends=True)
    """Seconds for the whole training, including the last validation and the test."""
    validate_every: Epochs | None = decides("weights", None)
    """Epochs between two validations; by default 1, or more on large graphs, such that validation takes at
    most a tenth of the time."""
    checkpoint_seconds: Seconds = decides("nothing", 30)
    """Seconds between two checkpoints, also in mid-epoch; the end and the best epoch are always saved."""
    precision: Literal["float32", "bfloat16"] = decides("weights", "float32")
    """Number type of the convolutions; positions and ranks stay in float32."""


class ResourceConfig(Section):
    """What the run may use; never changes a result beyond rounding."""

    workers: Workers = decides("nothing", 1)
    """Processes that train together: a number, or a range such as 2..8, from which as many run as there is
    room for."""
    resize_seconds: PositiveSeconds = decides("nothing", 60)
    """Seconds between checks of whether there is room for more workers, when a range is given."""
    cpus_per_worker: Cores | None = decides("nothing", None)
    """Cores, and threads, per worker; by default the machine's cores are divided evenly."""
    gpus_per_worker: Gpus = decides("nothing", 0)
    """GPUs per worker."""

    @property
    def least_workers(self) -> int:
        """The number of workers, or the lower end of their range."""
        return self.workers if isinstance(self.workers, int) else int(self.workers.partition("..")[0])

    @property
    def most_workers(self) -> int:
        """The number of workers, or the upper end of their range."""
        return self.workers if isinstance(self.workers, int) else int(self.workers.partition("..")[2])


class TrackingConfig(Section):
    """Where runs are recorded."""

    uri: str | None = decides("nothing", None)
    """MLflow tracking URI; by default MLFLOW_TRACKING_URI, else the file `mlflow.db` in `output`."""
    experiment: str = decides("nothing", "cocn")
    """Name of the MLflow experiment."""


class StorageConfig(Section):
    """Object storage, for nodes that share no disk; credentials come from the environment only."""

    uri: RemotePlace | None = decides("nothing", None)
    """URI (s3://, gs://) that checkpoints, results and predictions are copied to and resumed from; by default
    they are only in `output`, which all nodes must then see."""
    cache: Path = decides("nothing", Path("~/.cache/cocn"))
    """Directory on each node that caches files of remote stores."""
    cache_gib: Gibibytes = decides("nothing", 20)
    """Size limit of the cache, in GiB; the least recently used files are removed first."""
    retry_seconds: Seconds = decides("nothing", 120)
    """How long to keep retrying a storage that does not answer."""


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
    storage: StorageConfig = StorageConfig()
    """Object storage and its cache."""
    output: Path = decides("nothing", Path("runs"))
    """Directory for everything that a run writes."""
