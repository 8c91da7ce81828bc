"""Baselines from PyG: the usual networks under the same loop, splits and tracking as the CoCN family.

They read `hidden_channels`, `unit_layers` (number of layers) and `dropout` of the configuration; GAT its
`heads` too, and SGC `smoothness`, the power of the adjacency. The bodies are PyG's, with one linear map
at the end.
"""

import torch
from torch import Tensor, nn

from cocn import GraphBatch
from pipeline.config.settings import ModelConfig
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Task

BASELINES = ("mlp", "gcn", "gat", "sage", "sgc", "linkx")


class Baseline(nn.Module):
    """A network of PyG that answers for every node of a graph, or for every graph of a batch.

    Args:
        settings: name and sizes.
        num_nodes: nodes of the graph, which LINKX has a parameter row for each of.
        in_channels: features of a node; 0 for graphs without any.
        out_channels: classes; for links twice the size of an embedding.
        task: what the output is about; graphs are read off the mean or the sum of their nodes.

    Shapes:
        - **input:** a :class:`cocn.GraphBatch` of T nodes and B graphs
        - **output:** [T, out], in the order of the input, or [B, out] for graphs
    """

    positions = None

    def __init__(
        self,
        settings: ModelConfig,
        num_nodes: int,
        in_channels: int,
        out_channels: int,
        task: Task = "node",
    ) -> None:
        super().__init__()
        self.pooling = settings.pooling if task == "graph" else None
        self.reads_edges = settings.name != "mlp"
        self.body = build_body(settings, num_nodes, max(in_channels, 1))
        self.dropout = nn.Dropout(settings.dropout)
        self.out = nn.Linear(settings.hidden_channels, out_channels)

    def forward(self, graph: GraphBatch) -> Tensor:
        """Logits of every node or graph."""
        logits: Tensor = self.out(self.dropout(self.embed(graph)))
        return logits

    def embed(self, graph: GraphBatch) -> Tensor:
        """Representation before the last linear map, [T, C] or [B, C]."""
        x = graph.x
        if x is None:
            x = self.out.weight.new_ones(graph.arrangement.numel(), 1)
        hidden: Tensor = self.body(x, edge_index(graph)) if self.reads_edges else self.body(x)
        hidden = torch.relu(hidden)
        if self.pooling is not None:
            sums = graph.pad(hidden).sum(1)
            return sums if self.pooling == "sum" else sums / graph.lengths[:, None].to(sums.dtype)
        places = torch.arange(graph.arrangement.numel(), device=hidden.device)
        return hidden[torch.empty_like(places).scatter_(0, graph.arrangement, places)]


def build_body(settings: ModelConfig, num_nodes: int, in_channels: int) -> nn.Module:
    """Everything up to the last linear map.

    Raises:
        UserError: if GAT's heads do not share out its channels evenly.
    """
    # PyG takes seconds to import, and only these models need it.
    from torch_geometric.nn import GAT, GCN, LINKX, MLP, GraphSAGE, SGConv

    name, channels, heads = settings.name, settings.hidden_channels, settings.heads
    layers = max(settings.unit_layers, 1)
    body: nn.Module
    if name == "mlp":
        body = MLP(
            in_channels=in_channels,
            hidden_channels=channels,
            out_channels=channels,
            num_layers=layers,
            dropout=settings.dropout,
            norm=None,
        )
    elif name == "sgc":
        body = SGConv(in_channels, channels, K=max(settings.smoothness, 1))
    elif name == "linkx":
        body = LINKX(num_nodes, in_channels, channels, channels, layers, dropout=settings.dropout)
    elif name == "gat":
        if channels % heads:
            raise UserError(
                f"Expected 'model.hidden_channels' to be a multiple of the {heads} heads of 'gat' "
                f"(got {channels})"
            )
        body = GAT(in_channels, channels, layers, dropout=settings.dropout, heads=heads)
    else:
        kind = {"gcn": GCN, "sage": GraphSAGE}[name]
        body = kind(in_channels, channels, layers, dropout=settings.dropout)
    return body


def edge_index(graph: GraphBatch) -> Tensor:
    """Edges of all graphs of a batch in arranged numbers, [2, M]."""
    edges = torch.stack([graph.edges.source, graph.edges.target])
    if graph.num_graphs == 1:
        return edges
    starts = graph.lengths.cumsum(0) - graph.lengths
    return edges + starts[graph.edges.graph]
