"""A baseline: segment training as the paper's text describes it, keeping nothing from one batch to the next.

Legend: N nodes, R rows of a batch, H heads, S segment length, D features, E edge channels.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import cocn
from cocn.segments import window_adjacency, window_index
from pipeline.config.loading import Config
from pipeline.models.networks import Inputs, build_model
from pipeline.store.graph_store import GraphStore
from pipeline.training.inputs import read_graph
from pipeline.training.optimisation import take_step


class ResortingBaseline:
    """Rank, sort and segment the whole graph, then take a batch of segments, in every step.

    Positions are regressed on the full graph, every head sorts all nodes, a window slides over every
    sequence, and each of the N·H windows gets the features and the adjacency of its nodes from the full edge
    list; "mini-batching on the input nodes after segmentation" comes last.

    Args:
        store: The graph.
        config: A segment model with explicit positions.
    """

    def __init__(self, store: GraphStore, config: Config) -> None:
        torch.manual_seed(config.train.seed)
        model = build_model(config.model, config.segments, Inputs.of(store, config))
        graph = read_graph(store, config)
        if not isinstance(model, cocn.SegmentCoCN) or graph.x is None:
            raise ValueError("Expected a segment model and a graph with features (got something else)")
        self._model, self._graph, self._x_ND = model, graph, graph.x
        self._labels_N = torch.from_numpy(np.array(store.labels()))[graph.arrangement]
        self._optimiser = torch.optim.AdamW(model.parameters(), config.train.learning_rate)
        self._generator = torch.Generator().manual_seed(config.train.seed)
        self._config = config

    def step(self) -> float:
        """Train on one batch; returns its loss."""
        model, settings = self._model, self._config.train
        positions_NH = model.regress_positions(self._graph)
        index_NHS, x_NHSD, adjacency_NHSSE = self.segment_all(positions_NH.detach())
        batch_R = torch.randperm(len(self._labels_N), generator=self._generator)[: settings.batch_size]
        rows_RHS = index_NHS[batch_R]
        h = model.read_features(x_NHSD[batch_R].flatten(0, 2))
        places_RHS = torch.arange(h.size(0)).view_as(rows_RHS)
        positions = positions_NH[rows_RHS.reshape(-1)]
        embedded = model.embed_windows(h, positions, places_RHS, adjacency_NHSSE[batch_R])
        loss = F.cross_entropy(model.out(embedded), self._labels_N[batch_R])
        take_step(loss, model, self._optimiser, settings.clip, world_size=1)
        return float(loss.detach())

    def segment_all(self, positions_NH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes [N, H, S], features [N, H, S, D], adjacency [N, H, S, S, E] of the segments of all nodes."""
        length = self._model.segment_length
        order_HN = positions_NH.t().contiguous().argsort(dim=1, stable=True)
        places_HN = torch.arange(positions_NH.size(0)).expand_as(order_HN)
        rank_NH = torch.empty_like(order_HN).scatter_(1, order_HN, places_HN).t().contiguous()
        index_NHS = window_index(order_HN, rank_NH, length)
        adjacency = window_adjacency(self._graph.edges, rank_NH, length, positions_NH.dtype)
        return index_NHS, self._x_ND[index_NHS], adjacency
