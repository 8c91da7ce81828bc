"""The benchmarks of the paper: task, metric and protocol of each; counts and files are in the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipeline.ingest.published import BY_NAME, Published
from pipeline.paper.tables import Misprint, Result, load_misprints, load_tables
from pipeline.runtime.errors import UserError
from pipeline.runtime.spelling import suggest

Task = Literal["node", "graph", "link", "isomorphism"]
FAMILY = ("vanilla", "expanded", "sparse", "segment")


@dataclass(frozen=True)
class Protocol:
    """How a dataset is split, and how many times.

    Attributes:
        kind: splits that come with the data, random ones, folds of a cross-validation, or none at all, if all
            pairs of graphs are compared.
        num_splits: number of splits or folds.
        shares: shares of training and validation in percent; the rest is the test part.
        note: what the paper leaves open and what we use.
    """

    kind: Literal["given", "random", "folds", "pairs"]
    num_splits: int
    shares: tuple[int, int] | None = None
    note: str = ""

    def __str__(self) -> str:
        if self.kind == "pairs":
            return "all pairs"
        if self.kind == "folds":
            return f"{self.num_splits} folds"
        parts = ""
        if self.shares is not None:
            train, validation = self.shares
            parts = f" {train}/{validation}/{100 - train - validation}"
        return f"{self.num_splits} {self.kind}{parts}"

    def overrides(self) -> dict[str, object]:
        """Configuration values that produce the splits, by dotted key; empty if splits come with the data."""
        if self.kind == "folds":
            return {"data.num_splits": self.num_splits, "data.protocol": "gin"}
        if self.kind != "random" or self.shares is None:
            return {}
        train, validation = self.shares
        return {
            "data.num_splits": self.num_splits,
            "data.train_share": train / 100,
            "data.validation_share": validation / 100,
        }


@dataclass(frozen=True)
class Benchmark:
    """A dataset of the paper.

    Attributes:
        name: its name on the command line, and in the catalogue if it is read through that.
        title: its name in the paper.
        table: the table with its main results.
        counts: its counts, if it is not in the catalogue.
        fetch: what to download and where to put it, if it is not in the catalogue.
    """

    name: str
    title: str
    task: Task
    metric: str
    table: str
    protocol: Protocol
    counts: Mapping[str, int] = field(default_factory=dict)
    fetch: str = ""

    @property
    def entry(self) -> Published | None:
        """How the catalogue reads it; None for datasets that the isomorphism test reads itself."""
        return BY_NAME.get(self.name)

    @property
    def models(self) -> tuple[str, ...]:
        """Members of the family that the paper reports on it."""
        found = {result.model for result in self.results()}
        return tuple(name for name in FAMILY if name in found)

    def results(self) -> tuple[Result, ...]:
        """Its cells in the main table."""
        return tuple(cell for cell in load_tables()[self.table].entries if cell.dataset == self.name)

    def printed(self) -> Mapping[str, str]:
        """Its statistics as the paper prints them."""
        return load_tables()[self.table].statistics.get(self.name, {})

    def misprints(self) -> tuple[Misprint, ...]:
        """Its misprinted statistics and results."""
        return tuple(slip for slip in load_misprints() if slip.dataset == self.name)

    def overrides(self) -> dict[str, object]:
        """Configuration values that its table requires, by dotted key."""
        metric = {} if self.task == "isomorphism" else {"train.metric": self.metric}
        return {"data.source": self.name, **metric, **self.protocol.overrides()}


_GEOM = Protocol("given", 10, (48, 32))
_GIVEN = Protocol("given", 10, (50, 25))
_HOMOPHILOUS = Protocol(
    "random",
    10,
    (60, 20),
    "The paper refers to Shchur et al., who train on 20 nodes a class; its baselines are of 60/20/20 splits.",
)
_FOLDS = Protocol(
    "folds",
    10,
    note="The folds of the GIN paper; the epoch is selected on another fold, where GIN takes the test fold.",
)
_BRAIN = Protocol("random", 10, (70, 10), "As NeuroGraph: stratified; it repeats one split with other seeds.")
_PAIRS = Protocol("pairs", 1, note="Untrained networks of at most 30,000 parameters.")
_PAIR_SOURCE = "github.com/balcilar/gnn-matlang, dataset/, as isomorphism/{} under the data root"


def _graphs(name: str, title: str) -> Benchmark:
    return Benchmark(name, title, "graph", "accuracy", "graph", _FOLDS)


def _brain(name: str, title: str) -> Benchmark:
    return Benchmark(name, title, "graph", "accuracy", "graph-brain", _BRAIN)


def _pairs(name: str, title: str, graphs: int, pairs: int, file: str) -> Benchmark:
    counts = {"graphs": graphs, "pairs": pairs}
    place = _PAIR_SOURCE.format(file)
    return Benchmark(
        name, title, "isomorphism", "undistinguished_pairs", "isomorphism", _PAIRS, counts, place
    )


BENCHMARKS = (
    Benchmark("chameleon", "Chameleon", "node", "accuracy", "node", _GEOM),
    Benchmark("squirrel", "Squirrel", "node", "accuracy", "node", _GEOM),
    Benchmark("cornell", "Cornell", "node", "accuracy", "node", _GEOM),
    Benchmark("texas", "Texas", "node", "accuracy", "node", _GEOM),
    Benchmark("wisconsin", "Wisconsin", "node", "accuracy", "node", _GEOM),
    Benchmark("actor", "Actor", "node", "accuracy", "node", _GEOM),
    Benchmark("chameleon-filtered", "filtered Chameleon", "node", "accuracy", "filter", _GEOM),
    Benchmark("squirrel-filtered", "filtered Squirrel", "node", "accuracy", "filter", _GEOM),
    Benchmark("amazon-ratings", "amazon-ratings", "node", "accuracy", "node-hetero", _GIVEN),
    Benchmark("minesweeper", "minesweeper", "node", "roc_auc", "node-hetero", _GIVEN),
    Benchmark("tolokers", "tolokers", "node", "roc_auc", "node-hetero", _GIVEN),
    Benchmark("questions", "questions", "node", "roc_auc", "node-hetero", _GIVEN),
    Benchmark("genius", "genius", "node", "roc_auc", "node-hetero", Protocol("random", 5, (50, 25))),
    Benchmark("coauthor-cs", "Coauthor CS", "node", "accuracy", "node-homo", _HOMOPHILOUS),
    Benchmark("coauthor-physics", "Coauthor Physics", "node", "accuracy", "node-homo", _HOMOPHILOUS),
    Benchmark("amazon-photo", "Amazon Photo", "node", "accuracy", "node-homo", _HOMOPHILOUS),
    Benchmark("amazon-computers", "Amazon Computers", "node", "accuracy", "node-homo", _HOMOPHILOUS),
    _graphs("mutag", "MUTAG"),
    _graphs("proteins", "PROTEINS"),
    _graphs("nci1", "NCI1"),
    _graphs("imdb-binary", "IMDB-B"),
    _graphs("imdb-multi", "IMDB-M"),
    _graphs("collab", "COLLAB"),
    _brain("hcp-task", "HCP-Task"),
    _brain("hcp-gender", "HCP-Gender"),
    _brain("hcp-age", "HCP-Age"),
    Benchmark("pcqm-contact", "PCQM-Contact", "link", "mrr", "link", Protocol("given", 1, (90, 5))),
    _pairs("graph8c", "Graph8c", 11_117, 61_788_286, "graph8c/graph8c.g6"),
    _pairs("sr25", "sr25", 15, 105, "sr25/sr251256.g6"),
    _pairs("exp", "EXP", 1200, 600, "EXP/exp.npz"),
)
BENCHMARKS_BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of that name.

    Raises:
        UserError: suggesting the nearest one.
    """
    if name not in BENCHMARKS_BY_NAME:
        hint = suggest(name, BENCHMARKS_BY_NAME, "`cocn datasets list` shows the names")
        raise UserError(f"Expected a benchmark of the paper (got '{name}'): {hint}")
    return BENCHMARKS_BY_NAME[name]
