"""Links of one graph to predict: which edges are hidden from a model, and which pairs they compete with."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config
from pipeline.runtime.errors import UserError
from pipeline.storage.files import column_array
from pipeline.store.arrays import CSR, Integers
from pipeline.store.cleaning import clean_edges, distinct, edge_sources
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import TEST, TRAIN, VALIDATION


class LinkParameters(BaseModel):
    """What determines which links are hidden."""

    model_config = ConfigDict(frozen=True)

    split: int
    seed: int
    validation_share: float
    test_share: float
    negatives: int


class _LinkSummary(BaseModel):
    """What the manifest says about the links of a split: how many pairs each part has."""

    model_config = ConfigDict(frozen=True)

    train: int
    val: int
    test: int


@dataclass(frozen=True)
class Links:
    """Pairs of nodes with a label; those of the training part are all true, and the only edges a model sees.

    Shapes:
        ends: [p, 2] node ids; the smaller one first where the graph is undirected.
        labels: [p], 1 for edges, 0 for pairs without one.
        parts: [p], 0 train, 1 validation, 2 test.
    """

    ends: Integers
    labels: Integers
    parts: NDArray[np.int8]

    def part(self, code: int) -> Integers:
        """The pairs of a part, by number."""
        return np.flatnonzero(self.parts == code)


def stage_name(split: int) -> str:
    """The stage that hides links, one per split."""
    return f"links-{split}"


def write_links(store: GraphStore, config: Config, *, replace: bool = False) -> bool:
    """Hide edges for validation and test, and draw as many pairs without an edge; False if already done.

    Args:
        store: A single graph.
        config: Shares, seed and split.
        replace: Replace links with other parameters instead of refusing.

    Raises:
        UserError: If the graph has too few edges, or too few pairs without one.
    """
    data = config.data
    parameters = LinkParameters(
        split=data.split,
        seed=data.seed,
        validation_share=data.link_validation_share,
        test_share=data.link_test_share,
        negatives=data.link_negatives,
    )
    with store.begin(stage_name(data.split), parameters, replace=replace) as stage:
        if stage.done:
            return False
        links = draw_links(store.csr(), parameters, directed=store.directed)
        columns = {"source": links.ends[:, 0], "target": links.ends[:, 1]}
        stage.write_table("pairs.arrow", pa.table({**columns, "label": links.labels, "part": links.parts}))
        counts = [len(links.part(code)) for code in (TRAIN, VALIDATION, TEST)]
        stage.commit(_LinkSummary(train=counts[0], val=counts[1], test=counts[2]))
    return True


def read_links(store: GraphStore, split: int) -> Links:
    """The links of a split."""
    table = store.table(f"{stage_name(split)}/pairs.arrow")
    ends = np.stack([column_array(table, name) for name in ("source", "target")], axis=1)
    return Links(
        ends=cast(Integers, ends),
        labels=cast(Integers, np.array(column_array(table, "label"))),
        parts=cast("NDArray[np.int8]", np.array(column_array(table, "part"))),
    )


def draw_links(csr: CSR, parameters: LinkParameters, *, directed: bool) -> Links:
    """Shuffle the edges, take off the hidden ones, and draw pairs without an edge to go with them."""
    sources, targets = edge_sources(csr).astype(np.int64), csr.indices.astype(np.int64)
    once = sources != targets if directed else sources < targets
    edges = np.stack([sources[once], targets[once]], axis=1)
    draw = np.random.default_rng([parameters.seed, parameters.split])
    edges = edges[draw.permutation(len(edges))]
    num_test = round(len(edges) * parameters.test_share)
    num_validation = round(len(edges) * parameters.validation_share)
    num_train = len(edges) - num_test - num_validation
    if min(num_train, num_validation, num_test) < 1:
        raise UserError(
            "Expected edges for every part (got "
            f"{num_train} to train, {num_validation} to validate and {num_test} to test on)"
        )
    sizes = [num_train, num_validation, num_test]
    false_sizes = [0, *(parameters.negatives * size for size in sizes[1:])]
    keys = distinct(edges[:, 0] * csr.num_nodes + edges[:, 1])
    false = draw_pairs(csr.num_nodes, sum(false_sizes), keys, draw, directed=directed)
    parts = np.arange(3, dtype=np.int8)
    return Links(
        ends=np.concatenate([edges, false]),
        labels=np.repeat(np.array([1, 0], dtype=np.int64), [len(edges), len(false)]),
        parts=np.concatenate([np.repeat(parts, sizes), np.repeat(parts, false_sizes)]),
    )


def draw_pairs(
    num_nodes: int, count: int, known: Integers, draw: np.random.Generator, *, directed: bool
) -> Integers:
    """Distinct pairs of nodes, none of them known, [count, 2].

    Args:
        num_nodes: n.
        count: Number of pairs.
        known: Ascending keys, source · n + target, of pairs to exclude.
        draw: Random number generator.
        directed: Whether (u, v) and (v, u) are two pairs.

    Raises:
        UserError: If there are too few pairs to draw from.
    """
    room = num_nodes * (num_nodes - 1) // (1 if directed else 2) - len(known)
    if 2 * count > room:
        raise UserError(
            f"Expected at least {2 * count:,} pairs without an edge to draw {count:,} from (got {room:,}): "
            "lower data.link_negatives or the shares of hidden links"
        )
    found = np.zeros(0, dtype=np.int64)
    while len(found) < count:
        ends = draw.integers(num_nodes, size=(2 * (count - len(found)) + 16, 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        if not directed:
            ends.sort(axis=1)
        keys = ends[:, 0] * num_nodes + ends[:, 1]
        place = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
        fresh = keys[known[place] != keys] if len(known) else keys
        candidates = np.concatenate([found, fresh])
        found = candidates[np.sort(np.unique(candidates, return_index=True)[1])]
    found = found[:count]
    return np.stack([found // num_nodes, found % num_nodes], axis=1)


def message_graph(links: Links, num_nodes: int, *, directed: bool) -> CSR:
    """The graph of the training links only."""
    source, target = links.ends[links.parts == TRAIN].T
    return clean_edges(source, target, num_nodes, directed=directed)[0]
