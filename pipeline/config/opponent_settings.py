"""The settings that only opponents read."""

from typing import Annotated, Literal

from pipeline.config.bounds import Depth, Fraction, Heads, Hops, Natural, Share, at_most
from pipeline.config.marks import decides
from pipeline.config.section import Section


class OpponentConfig(Section):
    """What only opponents read, in addition to `hidden_channels` and `dropout`."""

    layers: Depth = decides("weights", 3)
    """Number of convolution layers or, in perceptrons, of linear layers."""
    norm: Literal["none", "batch", "layer", "unit"] = decides("weights", "batch")
    """What normalises the channels after each layer; `unit` scales every row to length 1."""
    residual: bool = decides("weights", True)
    """Add a linear map of a layer's input to its output."""
    jumping: Literal["none", "sum", "max"] = decides("weights", "none")
    """Read the sum, or the maximum, of all layers instead of the last one (jumping knowledge)."""
    input_layer: bool = decides("weights", True)
    """A linear map before the first convolution."""
    input_dropout: Fraction = decides("weights", 0.0)
    """Share of input features dropped in training."""
    attention_heads: Heads = decides("weights", 1)
    """Attention heads (gat, polynormer), which divide the channels among them."""
    hops: Hops = decides("weights", 3)
    """How far features are propagated before training (sgc, sign)."""
    neighbour_labels: bool = decides("weights", True)
    """Read the classes of the neighbours that are training nodes (sign)."""
    alpha: Share = decides("weights", 0.5)
    """Weight of the nodes that a node points to against those that point to it (dirgnn)."""
    global_layers: Depth = decides("weights", 1)
    """Layers of attention between all nodes (sgformer, polynormer)."""
    graph_weight: Share = decides("weights", 0.5)
    """Weight of the convolutions relative to the attention (sgformer)."""
    beta: Share = decides("weights", 0.9)
    """Weight of the linear features relative to the product features (polynormer)."""
    local_epochs: Annotated[Natural, at_most(1e8, "no training has more epochs")] = decides("weights", 100)
    """Epochs before attention between all nodes is added (polynormer)."""
    sampling: Literal["auto", "always", "never"] = decides("weights", "auto")
    """Train on sampled neighbourhoods (sage); `auto` does so on large graphs."""
