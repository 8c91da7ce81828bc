"""Published datasets by name, read through PyTorch Geometric from raw files that are never written to."""

import contextlib
import io
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.ingest.archives import read_npz
from pipeline.ingest.checks import RawGraph, make_raw
from pipeline.runtime.errors import UserError
from pipeline.store.arrays import Task
from pipeline.store.splits import splits_from_masks

_ROOT_VARIABLE = "COCN_DATA_ROOT"
_CACHE_VARIABLE = "COCN_CACHE"
#: Where the files in each folder of a data root come from.
_ORIGINS = {
    "heterophilous": "github.com/yandex-research/heterophilous-graphs, data/",
    "heterophilous_npz": "github.com/yandex-research/heterophilous-graphs, data/",
    "webkb": "github.com/graphdml-uiuc-jlu/geom-gcn, new_data/ and splits/",
    "wikipedia": "github.com/graphdml-uiuc-jlu/geom-gcn, new_data/ and splits/",
    "actor": "github.com/graphdml-uiuc-jlu/geom-gcn, new_data/film/ and splits/",
    "coauthor": "github.com/shchur/gnn-benchmark, data/npz/",
    "amazon": "github.com/shchur/gnn-benchmark, data/npz/",
    "linkx": "github.com/CUAI/Non-Homophily-Large-Scale, data/",
    "planetoid": "github.com/kimiyoung/planetoid, data/",
    "tu": "www.chrsmrrs.com/graphkerneldatasets",
    "lrgb": "github.com/vijaydwivedi75/lrgb",
    "neurograph": "github.com/Anwar-Said/NeuroGraph",
}


class AbsentDataError(UserError):
    """The files of a dataset are not available."""


@dataclass(frozen=True)
class Published:
    """A dataset published by others.

    Attributes:
        folder: Its directory under the data root.
        loader: Class of torch_geometric.datasets, or None for a plain .npz file.
        raw: A file under `folder` whose presence shows that the raw files are there.
    """

    name: str
    folder: str
    loader: str | None
    raw: str
    nodes: int
    edges: int
    """Undirected, without self-loops."""
    features: int
    classes: int
    splits: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    graphs: int = 1
    """Graphs in a collection; its nodes and edges are counted over all of them."""
    task: Task = "node"
    degree_features: bool = False
    """Whether the dataset has no features, so that those counted are one-hot degrees generated here."""


def _heterophilous(title: str, nodes: int, edges: int, features: int, classes: int) -> Published:
    name = title.lower()
    file = name.replace("-", "_")
    raw = f"{file}/raw/{file}.npz"
    return Published(
        name,
        "heterophilous",
        "HeterophilousGraphDataset",
        raw,
        nodes,
        edges,
        features,
        classes,
        10,
        {"name": title},
    )


def _planetoid(
    title: str, name: str, split: str, nodes: int, edges: int, features: int, classes: int
) -> Published:
    folder = f"{title}/geom-gcn" if split == "geom-gcn" else title
    raw = f"{folder}/raw/ind.{title.lower()}.graph"
    splits = 10 if split == "geom-gcn" else 1
    arguments = {"name": title, "split": split}
    return Published(name, "planetoid", "Planetoid", raw, nodes, edges, features, classes, splits, arguments)


def _plain(
    name: str, folder: str, loader: str, title: str, raw: str, counts: tuple[int, int, int, int], splits: int
) -> Published:
    return Published(name, folder, loader, raw, *counts, splits, {"name": title})


def _tu(title: str, graphs: int, nodes: int, edges: int, features: int, classes: int) -> Published:
    """A dataset of Morris et al. (2020); features are one-hot node labels (degrees for social networks)."""
    social = title in ("IMDB-BINARY", "IMDB-MULTI", "COLLAB")
    raw, arguments = f"{title}/raw/{title}_A.txt", {"name": title}
    counts = (nodes, edges, features, classes, 10)
    return Published(title.lower(), "tu", "TUDataset", raw, *counts, arguments, graphs, "graph", social)


def _brain(title: str, graphs: int, size: int, edges: int, classes: int) -> Published:
    """A dataset of Said et al. (2023); its edges follow from the mean that they print."""
    name, raw, arguments = f"hcp-{title[3:].lower()}", f"{title}/raw/data.pt", {"name": title}
    counts = (graphs * size, edges, size, classes, 0)
    return Published(name, "neurograph", "NeuroGraphDataset", raw, *counts, arguments, graphs, "graph")


PUBLISHED = (
    _heterophilous("Minesweeper", 10_000, 39_402, 7, 2),
    _heterophilous("Tolokers", 11_758, 519_000, 10, 2),
    _heterophilous("Roman-empire", 22_662, 32_927, 300, 18),
    _heterophilous("Amazon-ratings", 24_492, 93_050, 300, 5),
    _heterophilous("Questions", 48_921, 153_540, 301, 2),
    _plain(
        "cornell", "webkb", "WebKB", "Cornell", "cornell/raw/out1_graph_edges.txt", (183, 277, 1703, 5), 10
    ),
    _plain("texas", "webkb", "WebKB", "Texas", "texas/raw/out1_graph_edges.txt", (183, 279, 1703, 5), 10),
    _plain(
        "wisconsin",
        "webkb",
        "WebKB",
        "Wisconsin",
        "wisconsin/raw/out1_graph_edges.txt",
        (251, 450, 1703, 5),
        10,
    ),
    Published("actor", "actor", "Actor", "raw/out1_graph_edges.txt", 7600, 26_659, 932, 5, 10),
    _plain(
        "chameleon",
        "wikipedia",
        "WikipediaNetwork",
        "chameleon",
        "chameleon/geom_gcn/raw/out1_graph_edges.txt",
        (2277, 31_371, 2325, 5),
        10,
    ),
    _plain(
        "squirrel",
        "wikipedia",
        "WikipediaNetwork",
        "squirrel",
        "squirrel/geom_gcn/raw/out1_graph_edges.txt",
        (5201, 198_353, 2089, 5),
        10,
    ),
    Published(
        "chameleon-filtered", "heterophilous_npz", None, "chameleon_filtered.npz", 890, 8854, 2325, 5, 10
    ),
    Published(
        "squirrel-filtered", "heterophilous_npz", None, "squirrel_filtered.npz", 2223, 46_998, 2089, 5, 10
    ),
    _planetoid("Cora", "cora", "public", 2708, 5278, 1433, 7),
    _planetoid("Cora", "cora-geom", "geom-gcn", 2708, 5278, 1433, 7),
    _planetoid("CiteSeer", "citeseer", "public", 3327, 4552, 3703, 6),
    _planetoid("CiteSeer", "citeseer-geom", "geom-gcn", 3327, 4552, 3703, 6),
    _planetoid("PubMed", "pubmed", "public", 19_717, 44_324, 500, 3),
    _plain(
        "coauthor-cs",
        "coauthor",
        "Coauthor",
        "CS",
        "CS/raw/ms_academic_cs.npz",
        (18_333, 81_894, 6805, 15),
        0,
    ),
    _plain(
        "coauthor-physics",
        "coauthor",
        "Coauthor",
        "Physics",
        "Physics/raw/ms_academic_phy.npz",
        (34_493, 247_962, 8415, 5),
        0,
    ),
    _plain(
        "amazon-computers",
        "amazon",
        "Amazon",
        "Computers",
        "Computers/raw/amazon_electronics_computers.npz",
        (13_752, 245_861, 767, 10),
        0,
    ),
    _plain(
        "amazon-photo",
        "amazon",
        "Amazon",
        "Photo",
        "Photo/raw/amazon_electronics_photo.npz",
        (7650, 119_081, 745, 8),
        0,
    ),
    _plain("reed98", "linkx", "LINKXDataset", "reed98", "reed98/raw/data.mat", (962, 18_812, 745, 2), 0),
    _plain(
        "amherst41",
        "linkx",
        "LINKXDataset",
        "amherst41",
        "amherst41/raw/data.mat",
        (2235, 90_954, 1193, 2),
        0,
    ),
    _plain(
        "johnshopkins55",
        "linkx",
        "LINKXDataset",
        "johnshopkins55",
        "johnshopkins55/raw/data.mat",
        (5180, 186_586, 2406, 2),
        0,
    ),
    _plain("genius", "linkx", "LINKXDataset", "genius", "genius/raw/data.mat", (421_961, 922_868, 12, 2), 0),
    _tu("MUTAG", 188, 3371, 3721, 7, 2),
    _tu("PROTEINS", 1113, 43_471, 81_044, 3, 2),
    _tu("NCI1", 4110, 122_747, 132_753, 37, 2),
    _tu("ENZYMES", 600, 19_580, 37_282, 3, 6),
    _tu("IMDB-BINARY", 1000, 19_773, 96_531, 65, 2),
    _tu("IMDB-MULTI", 1500, 19_502, 98_903, 59, 3),
    _tu("COLLAB", 5000, 372_474, 12_286_079, 367, 3),
    _brain("HCPTask", 7443, 400, 52_318_187, 7),
    _brain("HCPGender", 1078, 1000, 49_133_742, 2),
    _brain("HCPAge", 1065, 1000, 48_551_646, 3),
    Published(
        "pcqm-contact",
        "lrgb",
        "LRGBDataset",
        "pcqm-contact/raw/train.pt",
        15_955_687,
        16_170_822,
        9,
        0,
        1,
        {"name": "PCQM-Contact"},
        529_434,
        "link",
    ),
    Published("wordnet30", "large", None, "wordnet30.npz", 117_659, 183_789, 256, 45, 5),
)
BY_NAME = {entry.name: entry for entry in PUBLISHED}


def data_root(given: Path | None) -> Path | None:
    """The directory with raw files: the one given, else the one in COCN_DATA_ROOT."""
    named = os.environ.get(_ROOT_VARIABLE)
    return given or (Path(named) if named else None)


def raw_file(entry: Published, root: Path | None) -> Path | None:
    """The file that shows that a dataset's raw files are under `root`, or None."""
    path = root / entry.folder / entry.raw if root is not None else None
    return path if path is not None and path.is_file() else None


def read_published(entry: Published, root: Path | None, *, directed: bool = False) -> RawGraph:
    """Load a dataset from raw files under `root`, or download it into the cache.

    Raises:
        AbsentDataError: If the files are absent and cannot be downloaded.
    """
    found = raw_file(entry, data_root(root))
    if entry.loader is None:
        if found is None:
            raise AbsentDataError(_absent(entry, root, "it cannot be downloaded"))
        return read_npz(found, directed=directed)
    if found is None:
        return _convert(entry, _load(entry, cache_root() / entry.folder, root), directed)
    with mirrored(found_root(entry, found)) as mirror:
        return _convert(entry, _load(entry, mirror, root), directed)


def found_root(entry: Published, raw: Path) -> Path:
    """The dataset's directory, given the file that `raw_file` found."""
    return raw.parents[len(Path(entry.raw).parts) - 1]


def cache_root() -> Path:
    """Where downloads go."""
    named = os.environ.get(_CACHE_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "cocn" / "datasets"


@contextmanager
def mirrored(directory: Path) -> Iterator[Path]:
    """A temporary tree of links to `directory`'s files, since PyG writes next to the files it reads."""
    with tempfile.TemporaryDirectory(prefix="cocn-") as temporary:
        for path in directory.rglob("*"):
            if path.is_file() and "processed" not in path.relative_to(directory).parts:
                link = Path(temporary) / path.relative_to(directory)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.absolute())
        yield Path(temporary)


def _load(entry: Published, directory: Path, root: Path | None) -> Any:
    return load_dataset(entry, directory, root)[0]


def load_dataset(entry: Published, directory: Path, root: Path | None, **arguments: Any) -> Any:
    """The PyG dataset of an entry.

    Raises:
        AbsentDataError: If its files are absent and cannot be downloaded.
    """
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        from torch_geometric import datasets

        try:
            return getattr(datasets, entry.loader or "")(str(directory), **entry.arguments, **arguments)
        except (OSError, RuntimeError, ValueError, EOFError) as error:
            reason = f"loading it failed with {type(error).__name__}"
            raise AbsentDataError(_absent(entry, root, reason)) from error


def _convert(entry: Published, data: Any, directed: bool) -> RawGraph:
    splits = None
    if "train_mask" in data:
        masks = [data[f"{part}_mask"].numpy() for part in ("train", "val", "test")]
        splits = splits_from_masks(*(mask.T if mask.ndim == 2 else mask for mask in masks))
    edges = data.edge_index.numpy()
    return make_raw(
        entry.name,
        entry.name,
        edges[0],
        edges[1],
        num_nodes=int(data.num_nodes),
        features=None if data.x is None else data.x.numpy(),
        labels=np.asarray(data.y.numpy()),
        splits=splits,
        directed=directed,
    )


def _fetch_hint(entry: Published) -> str:
    """What to download and where to put it, for a dataset that is absent."""
    origin = _ORIGINS.get(entry.folder)
    where = f" (from {origin})" if origin else ""
    return f"give --data-root a directory with '{entry.folder}/{entry.raw}'{where}"


def _absent(entry: Published, root: Path | None, reason: str) -> str:
    place = data_root(root)
    where = "a data root" if place is None else f"'{place / entry.folder}'"
    return (
        f"Expected the raw files of '{entry.name}' under {where} (got none, and {reason}): "
        f"{_fetch_hint(entry)}"
    )
