"""Bounds on settings, each with its reason: beyond them a run would never end or not fit into memory."""

from typing import Annotated

from pydantic import AfterValidator, Field

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


def at_most(limit: float, reason: str) -> AfterValidator:
    """Refuse a larger number, and say why it is too large."""

    def check(value: float) -> float:
        if value > limit:
            raise ValueError(f"Input should be at most {limit:,}, as {reason}")
        return value

    return AfterValidator(check)


#: Nodes are numbered in 32 bits, as in networkit, METIS and PyG.
_MOST_NODES = 2**31 - 1
_SIDE_LIMIT = 46_340
#: What numpy's and scikit-learn's generators accept.
_MOST_SEED = 2**32 - 1
#: Pairs of nodes of a window are bits of 64-bit words.
_LONGEST_SEGMENT = 64
#: Searches that share one sweep are the bits of a node's 512-bit row.
_MOST_SOURCES = 512

Seed = Annotated[int, Field(ge=0), at_most(_MOST_SEED, "seeds are 32-bit numbers")]
NodeCount = Annotated[Count, at_most(_MOST_NODES, "nodes are numbered in 32 bits")]
Side = Annotated[int, Field(ge=2), at_most(_SIDE_LIMIT, "nodes are numbered in 32 bits, and there are side²")]
SplitNumber = Annotated[Natural, at_most(1_000_000, "no dataset has more splits")]
Repetitions = Annotated[Count, at_most(1_000, "each split is stored for every node")]
GraphCount = Annotated[int, Field(ge=30), at_most(1_000_000, "all of them are generated in memory")]
Hops = Annotated[Count, at_most(64, "each hop is a column of every node")]
Sources = Annotated[Count, at_most(_MOST_SOURCES, "sources of a sweep share the words of a node")]
Refinements = Annotated[Natural, at_most(100, "each searches the whole graph again")]
SegmentLength = Annotated[
    int, Field(ge=2), at_most(_LONGEST_SEGMENT, "the edges in a segment are bits of its words")
]
ShardRows = Annotated[Count, at_most(100_000_000, "a shard is read into memory")]
Heads = Annotated[Count, at_most(1_024, "each head orders and reads every node once more")]
Width = Annotated[Count, at_most(65_536, "a layer has this many squared weights")]
Kernel = Annotated[Count, at_most(1_024, "a convolution reads its square")]
Layers = Annotated[Natural, at_most(256, "each layer reads every node once more")]
Depth = Annotated[Count, at_most(256, "each layer reads every node once more")]
Share = Annotated[float, Field(ge=0, le=1)]
Steps = Annotated[Natural, at_most(256, "each step reads every edge once more")]
Neighbours = Annotated[Count, at_most(10_000, "they multiply with every layer")]
Negatives = Annotated[Count, at_most(10_000, "each hidden edge is ranked among this many pairs per edge")]
Epochs = Annotated[Count, at_most(100_000_000, "nobody waits for more")]
BatchSize = Annotated[Count, at_most(1_000_000_000, "a batch is held in memory")]
Seconds = Annotated[NonNegative, at_most(1e9, "that is thirty years")]
PositiveSeconds = Annotated[Positive, at_most(1e9, "that is thirty years")]
Cores = Annotated[Count, at_most(4_096, "no machine has more cores")]
Gpus = Annotated[NonNegative, at_most(64, "no machine has more GPUs")]
Gibibytes = Annotated[Positive, at_most(1e9, "no disk holds more")]
MOST_WORKERS = 10_000
