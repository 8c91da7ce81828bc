"""Ingest: every source gives the same graph, and every kind of bad input one clear line and no store."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from pipeline.config.settings import SourceOptions
from pipeline.ingest.archives import load_arrays
from pipeline.ingest.external_sort import EdgeSpill
from pipeline.ingest.published import BY_NAME, PUBLISHED, raw_file
from pipeline.ingest.stage import ingest, is_generated, read_source
from pipeline.runtime.errors import UserError
from pipeline.store.access import open_store
from pipeline.store.classes import class_names
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore

DATA_ROOT = Path(os.environ.get("COCN_DATA_ROOT") or Path(__file__).parents[4] / "shared" / "datasets")
# 0 - 1 - 2 - 3 and 0 - 2, with a repeated edge, a reversed one and a self-loop; node 4 has no edge.
PAIRS = np.array([[0, 1], [1, 2], [2, 3], [0, 2], [0, 1], [2, 1], [3, 3]])
INDICES = [1, 2, 0, 2, 0, 1, 3, 2]
FEATURES = np.arange(10, dtype=np.float32).reshape(5, 2)
LABELS = np.array([0, 1, 0, 1, -1])


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COCN_DATA_ROOT", raising=False)


def load(tmp_path: Path, source: object, **options: object) -> GraphStore:
    return ingest(SourceOptions(source=str(source), **options), tmp_path / "store").store  # type: ignore[arg-type]


def write_csv(path: Path, **columns: object) -> Path:
    csv.write_csv(pa.table(columns), path, csv.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ","))
    return path


def write_parquet(path: Path, **columns: object) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def write_snap(path: Path, **columns: object) -> Path:
    ends = [np.asarray(column) for column in columns.values()]
    lines = [f"{source}\t{target}" for source, target in zip(*ends, strict=True)]
    path.write_text("\n".join(["# Directed graph", "# FromNodeId\tToNodeId", *lines]) + "\n")
    return path


def write_gzip(path: Path, **columns: object) -> Path:
    plain = write_csv(path.with_name("plain.csv"), **columns)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


WRITERS: dict[str, Callable[..., Path]] = {
    "edges.csv": write_csv,
    "edges.tsv": write_csv,
    "edges.parquet": write_parquet,
    "edges.txt": write_snap,
    "edges.csv.gz": write_gzip,
}


@pytest.mark.parametrize("name", WRITERS)
def test_edge_lists_with_features_and_labels(tmp_path: Path, name: str) -> None:
    edges = WRITERS[name](tmp_path / name, source=PAIRS[:, 0], target=PAIRS[:, 1])
    np.save(tmp_path / "x.npy", FEATURES)
    np.savez(tmp_path / "y.npz", labels=LABELS)
    store = load(tmp_path, edges, features=tmp_path / "x.npy", labels=tmp_path / "y.npz")
    assert store.csr().indices.tolist() == INDICES
    assert np.array_equal(store.features(), FEATURES)
    assert store.labels().tolist() == LABELS.tolist()
    assert store.num_splits == 10
    assert (store.split(0)[4], store.split(0)[:4].min()) == (-1, 0)
    report = store.manifest.stages["ingest"].summary
    assert report["edges"] == {
        "input_edges": 7,
        "self_loops": 1,
        "duplicates": 1,
        "one_way": 3,
        "undirected_edges": 4,
        "symmetrised": True,
    }
    assert (report["components"], report["unlabelled"]) == (2, 1)
    assert store.timings()["ingest"].peak_memory_bytes > 0


def test_text_ids_are_kept(tmp_path: Path) -> None:
    edges = write_csv(tmp_path / "e.csv", a=["paris", "rome", "oslo"], b=["rome", "oslo", "paris"])
    store = load(tmp_path, edges)
    ids = store.ids()
    assert ids is not None
    assert ids.to_pylist() == ["oslo", "paris", "rome"]
    assert store.csr().indices.tolist() == [1, 2, 0, 2, 0, 1]


def test_gaps_between_integer_ids_are_closed(tmp_path: Path) -> None:
    store = load(tmp_path, write_csv(tmp_path / "e.csv", a=[10, 700], b=[700, 5]))
    ids = store.ids()
    assert ids is not None
    assert ids.to_pylist() == [5, 10, 700]
    assert store.csr().indices.tolist() == [2, 2, 0, 1]


def test_dense_integer_ids_need_no_table(tmp_path: Path) -> None:
    assert load(tmp_path, write_csv(tmp_path / "e.csv", a=[0, 1], b=[1, 2])).ids() is None


def test_more_nodes_than_edges_name(tmp_path: Path) -> None:
    assert load(tmp_path, write_csv(tmp_path / "e.csv", a=[0], b=[1]), num_nodes=6).num_nodes == 6


def test_columns_by_name_and_a_node_table_with_ids(tmp_path: Path) -> None:
    edges = write_csv(tmp_path / "e.csv", weight=[1.5, 2.5], start=["b", "c"], end=["c", "a"])
    nodes = write_parquet(
        tmp_path / "nodes.parquet",
        name=["c", "a", "b", "z"],
        vector=[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]],
        kind=[1, 0, None, 1],
        part=["train", "val", None, "test"],
    )
    store = load(
        tmp_path,
        edges,
        features=nodes,
        source_column="start",
        target_column="end",
        id_column="name",
        label_column="kind",
        split_column="part",
    )
    assert store.csr().indices.tolist() == [1, 2, 0, 0]
    assert store.features().tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert store.labels().tolist() == [1, 0, -1, 1]
    assert store.split(0).tolist() == [0, 1, -1, 2]
    assert store.num_splits == 1


def test_features_and_labels_in_two_tables(tmp_path: Path) -> None:
    edges = write_csv(tmp_path / "e.csv", a=[0, 1], b=[1, 2])
    features = write_csv(tmp_path / "x.csv", first=[0.5, 1.5, 2.5], second=[1, 2, 3])
    labels = write_csv(tmp_path / "y.tsv", label=[1, 0, 1])
    store = load(tmp_path, edges, features=features, labels=labels)
    assert store.features().tolist() == [[0.5, 1], [1.5, 2], [2.5, 3]]
    assert store.labels().tolist() == [1, 0, 1]


def test_directed_edges_are_kept(tmp_path: Path) -> None:
    store = load(tmp_path, write_csv(tmp_path / "e.csv", a=[0, 1, 2], b=[1, 2, 0]), directed=True)
    assert store.directed
    assert store.csr().indices.tolist() == [1, 2, 0]


def test_npz_layouts(tmp_path: Path) -> None:
    masks = np.eye(5, dtype=bool)[None, :3]
    files = {"train_masks": masks[:, 0], "val_masks": masks[:, 1], "test_masks": masks[:, 2]}
    np.savez(tmp_path / "h.npz", edges=PAIRS, node_features=FEATURES, node_labels=LABELS, **files)
    np.savez(tmp_path / "p.npz", edges=PAIRS.T, features=FEATURES, labels=LABELS)
    csr, _ = clean_edges(PAIRS[:, 0], PAIRS[:, 1], 5, directed=True)
    shchur = {"adj_indices": csr.indices, "adj_indptr": csr.indptr, "adj_data": np.ones(csr.num_edges)}
    np.savez(tmp_path / "s.npz", **shchur, adj_shape=(5, 5), attr_matrix=FEATURES, labels=LABELS)
    for name in ("h", "p", "s"):
        store = ingest(SourceOptions(source=str(tmp_path / f"{name}.npz")), tmp_path / name).store
        assert store.csr().indices.tolist() == INDICES, name
        assert store.labels().tolist() == LABELS.tolist(), name
    assert open_store(tmp_path / "h").split(0).tolist() == [0, 1, 2, -1, -1]
    assert open_store(tmp_path / "s").features().tolist() == (FEATURES > 0).tolist()


def test_two_edges_in_an_npz_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "h.npz", edges=np.array([[0, 1], [2, 1]]), node_features=FEATURES)
    assert load(tmp_path, tmp_path / "h.npz").csr().indices.tolist() == [1, 0, 2, 1]


def test_mat_file(tmp_path: Path) -> None:
    from scipy.io import savemat
    from scipy.sparse import csr_matrix

    csr, _ = clean_edges(PAIRS[:, 0], PAIRS[:, 1], 5)
    matrix = csr_matrix((np.ones(csr.num_edges), csr.indices, csr.indptr), shape=(5, 5))
    info = np.array([[1, 1, 7], [1, 2, 9], [2, 0, 7], [1, 1, 7], [2, 2, 8]])
    savemat(tmp_path / "data.mat", {"A": matrix, "local_info": info})
    store = load(tmp_path, tmp_path / "data.mat")
    assert store.csr().indices.tolist() == INDICES
    assert store.labels().tolist() == [0, 1, -1, 0, 1]
    assert store.features().tolist()[1] == [1, 0, 0, 0, 1]


def test_metis_file_with_labels(tmp_path: Path) -> None:
    (tmp_path / "x.metis").write_text("4 3\n2\n1 3\n2 4\n3\n")
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    store = load(tmp_path, tmp_path / "x.metis", labels=tmp_path / "y.npy")
    assert store.csr().indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert store.labels().tolist() == [0, 1, 0, 1]


def test_generated_graphs(tmp_path: Path) -> None:
    board = load(tmp_path, "minesweeper", side=6)
    assert (board.num_nodes, board.manifest.num_features) == (36, 7)
    power = ingest(SourceOptions(source="power-law", num_nodes=300), tmp_path / "power").store
    assert power.num_nodes == 300


def test_rerun_is_a_no_op_and_other_options_are_refused(tmp_path: Path) -> None:
    options = SourceOptions(source="minesweeper", side=5)
    assert ingest(options, tmp_path / "store").fresh
    assert not ingest(options, tmp_path / "store").fresh
    with pytest.raises(UserError, match="to hold the requested graph"):
        ingest(options.model_copy(update={"seed": 1}), tmp_path / "store")


def test_a_changed_file_is_another_source(tmp_path: Path) -> None:
    edges = write_csv(tmp_path / "e.csv", a=[0, 1], b=[1, 2])
    load(tmp_path, edges)
    write_csv(edges, a=[0, 1], b=[1, 0])
    with pytest.raises(UserError, match="to hold the requested graph"):
        load(tmp_path, edges)


@given(data=st.data(), directed=st.booleans(), memory=st.sampled_from([1, 7, 50, 10_000]))
@settings(max_examples=40, deadline=None)
def test_edges_on_disk_are_sorted_as_in_memory(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, directed: bool, memory: int
) -> None:
    size = data.draw(st.integers(1, 30))
    ends = st.lists(st.integers(0, size - 1), min_size=120, max_size=120)
    sources, targets = np.array(data.draw(ends)), np.array(data.draw(ends))
    spill = EdgeSpill(tmp_path_factory.mktemp("spill"), size, directed=directed, memory_edges=memory)
    for start in range(0, 120, 17):
        spill.append(sources[start : start + 17], targets[start : start + 17])
    done = spill.finish()
    csr, report = done.csr, done.report
    expected, expected_report = clean_edges(sources, targets, size, directed=directed)
    assert np.array_equal(csr.indptr, expected.indptr)
    assert np.array_equal(csr.indices, expected.indices)
    assert csr.indices.dtype == expected.indices.dtype
    assert report == expected_report
    assert (spill.spilled > 0) == (memory < 10_000)


def test_streamed_blocks_give_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    pairs = draw.integers(0, 400, (3000, 2))
    edges = write_csv(tmp_path / "e.csv", a=pairs[:, 0], b=pairs[:, 1])
    whole = load(tmp_path, edges)
    monkeypatch.setattr("pipeline.ingest.edgelists.BLOCK_BYTES", 700)
    monkeypatch.setattr(
        "pipeline.ingest.external_sort.EdgeSpill.__init__.__kwdefaults__",
        {"directed": False, "num_values": 0, "memory_edges": 200},
    )
    streamed = ingest(SourceOptions(source=str(edges)), tmp_path / "streamed").store
    assert streamed.digest == whole.digest


@pytest.mark.parametrize("form", ["csv", "npy"])
def test_classes_with_names_are_numbered_and_keep_them(tmp_path: Path, form: str) -> None:
    edges = write_csv(tmp_path / "e.csv", a=[0, 1, 2], b=[1, 2, 3])
    if form == "csv":
        labels = tmp_path / "labels.csv"
        labels.write_text('"label"\ndog\ncat\n""\ndog\n')
    else:
        labels = tmp_path / "labels.npy"
        np.save(labels, np.array(["dog", "cat", "", "dog"]))
    store = ingest(SourceOptions(source=str(edges), labels=labels), tmp_path / "store").store
    assert class_names(store) == ("cat", "dog")
    assert store.labels().tolist() == [1, 0, -1, 1]
    assert store.manifest.num_classes == 2


def test_classes_without_names_have_none(tmp_path: Path) -> None:
    assert class_names(load(tmp_path, write_csv(tmp_path / "e.csv", a=[0, 1], b=[1, 2]))) is None


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def damaged_parquet(path: Path) -> None:
    write_parquet(path, a=[0], b=[1])
    cut(path, path.stat().st_size - 9)


def damaged_npz(path: Path) -> None:
    np.savez(path, edges=PAIRS, features=FEATURES)
    cut(path, 300)


# Files that are bad by themselves: what they are called and how to write them.
FILES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "empty file": ("bad.csv", lambda path: path.touch()),
    "no rows": ("bad.csv", lambda path: path.write_text("a,b\n")),
    "one column": ("bad.csv", lambda path: write_csv(path, a=[1, 2])),
    "negative id": ("bad.csv", lambda path: write_csv(path, a=[0, 1, -4], b=[1, 2, 0])),
    "float ids": ("bad.csv", lambda path: write_csv(path, a=[0.5, 1.5], b=[1.5, 2.5])),
    "ragged rows": ("bad.csv", lambda path: path.write_text("a,b\n0,1\n1,2,3\n")),
    "gap": ("bad.csv", lambda path: path.write_text("a,b\n0,1\n,2\n")),
    "damaged parquet": ("bad.parquet", damaged_parquet),
    "damaged npz": ("bad.npz", damaged_npz),
    "pickled npz": ("bad.npz", lambda path: np.savez(path, edges=np.array([{}], dtype=object))),
    "other npz": ("bad.npz", lambda path: np.savez(path, nothing=PAIRS)),
    "npz id out of range": ("bad.npz", lambda path: np.savez(path, edges=PAIRS, features=FEATURES[:3])),
    "empty npz": ("bad.npz", lambda path: np.savez(path, edges=PAIRS[:0], features=FEATURES[:0])),
    "damaged mat": ("bad.mat", lambda path: path.write_bytes(b"MATLAB 5.0 nothing")),
    "unknown ending": ("bad.xyz", lambda path: path.write_text("0 1\n")),
    "broken metis": ("bad.metis", lambda path: path.write_text("hello\n")),
}
# Arrays that are bad beside the good edges 0 - 1 - 2 - 0: features, labels.
ARRAYS: dict[str, tuple[np.ndarray | None, np.ndarray | None]] = {
    "id out of range": (FEATURES[:2], None),
    "nan feature": (np.array([[1.0], [np.nan], [2.0]]), None),
    "infinite feature": (np.array([[1.0], [2.0], [np.inf]]), None),
    "text features": (np.array(["a", "b", "c"]), None),
    "label too small": (None, np.array([0, -7, 1])),
    "label too large": (None, np.array([0, 1, 12])),
    "fractional label": (None, np.array([0.0, 0.5, 1.0])),
    "too few labels": (FEATURES[:3], np.array([0, 1])),
}
# Node tables that are bad beside them.
TABLES: dict[str, dict[str, object]] = {
    "unknown node": {"id": [0, 1, 7], "v": [1.0, 2.0, 3.0]},
    "repeated id": {"id": [0, 1, 1], "v": [1.0, 2.0, 3.0]},
    "unknown split": {"split": ["train", "dev", "test"], "v": [1.0, 2.0, 3.0]},
    "split without label": {"split": ["train", "val", "test"], "label": [0, None, 1]},
    "text column": {"v": ["a", "b", "c"]},
    "gap in a feature": {"v": [1.0, None, 3.0]},
    "ragged features": {"v": [[1.0], [2.0, 3.0], [4.0]]},
}
# Options that are bad: {edges} and {here} are filled in.
OPTIONS: dict[str, dict[str, str]] = {
    "missing file": {"source": "{here}/nothing.csv"},
    "missing features": {"source": "{edges}", "features": "{here}/nothing.npy"},
    "unknown column": {"source": "{edges}", "source_column": "c"},
    "unknown label column": {"source": "{edges}", "features": "{edges}", "label_column": "c"},
    "name with dots": {"source": "../../minesweeper"},
    "misspelt name": {"source": "minesweper"},
    "absent dataset": {"source": "wordnet30", "data_root": "{here}"},
}


def bad(here: Path, kind: str) -> dict[str, str]:
    """Options that name one kind of bad input."""
    edges = write_csv(here / "e.csv", a=[0, 1, 2], b=[1, 2, 0])
    if kind in FILES:
        name, write = FILES[kind]
        write(here / name)
        return {"source": str(here / name)}
    if kind in ARRAYS:
        options = {"source": str(edges)}
        for purpose, values in zip(("features", "labels"), ARRAYS[kind], strict=True):
            if values is not None:
                np.save(here / f"{purpose}.npy", values)
                options[purpose] = str(here / f"{purpose}.npy")
        return options
    if kind in TABLES:
        return {"source": str(edges), "features": str(write_parquet(here / "t.parquet", **TABLES[kind]))}
    return {name: text.format(edges=edges, here=here) for name, text in OPTIONS[kind].items()}


BAD = {
    "empty file": r"bad\.csv' to hold edges \(got an empty file\)",
    "no rows": "to hold edges",
    "one column": r"to have two columns \(got 1",
    "negative id": r"column 'a' of '.*bad\.csv' to hold ids of 0 or more \(got -4 in row 3\)",
    "float ids": "'a' of .* to hold integers or text",
    "ragged rows": r"Row #3: Expected 2 columns, got 3",
    "gap": r"column 'a' of .* to have no gaps \(got one in row 2\)",
    "damaged parquet": r"bad\.parquet' to be a complete edge list",
    "damaged npz": r"bad\.npz' to be a complete \.npz file",
    "pickled npz": r"bad\.npz' to be a complete \.npz file of plain arrays",
    "other npz": r"to hold 'edges', 'node_features' or 'adj_indptr' \(got nothing\)",
    "npz id out of range": r"'source' of '.*bad\.npz' to hold ids in 0…2 \(got 3 in row 7\)",
    "empty npz": r"two nodes or more \(got 0\)",
    "damaged mat": r"bad\.mat' to be a complete \.mat file",
    "unknown ending": r"to end in one of .*\.csv.* \(got '\.xyz'\)",
    "broken metis": r"bad\.metis' to begin with the numbers of nodes and edges",
    "id out of range": r"column 'a' of '.*e\.csv' to hold ids in 0…1 \(got 2 in row 3\)",
    "ragged features": r"column 'v' of '.*t\.parquet' to have 1 numbers each \(got 2 in row 2\)",
    "nan feature": r"features\.npy' to be finite \(got nan in row 2, column 1\)",
    "infinite feature": r"features\.npy' to be finite \(got inf in row 3",
    "text features": r"features\.npy' to be numbers",
    "label too small": r"labels\.npy' to be classes .* \(got -7 in row 2\)",
    "label too large": r"labels\.npy' to be classes .* \(got 12 in row 3\)",
    "fractional label": r"labels\.npy' to be integers \(got 0\.5 in row 2\)",
    "too few labels": r"labels\.npy' to have 3 rows",
    "unknown node": r"column 'a' of '.*e\.csv' to hold ids of the node table \(got '2' in row 3\)",
    "repeated id": r"'id' of '.*t\.parquet' to name every node once \(got '1' twice\)",
    "unknown split": r"'split' of '.*t\.parquet' to hold train, val or test \(got 'dev' in row 2\)",
    "split without label": r"every node in split 0 .* to have a label \(got none for node 1\)",
    "text column": r"'v' of '.*t\.parquet' to hold numbers",
    "gap in a feature": r"'v' of '.*t\.parquet' to have no gaps \(got one in row 2\)",
    "missing file": r"to be a dataset or an existing file",
    "missing features": r"nothing\.npy' to be a file",
    "unknown column": r"e\.csv' to have column 'c' \(got a, b\)",
    "unknown label column": r"to have column 'c'",
    "name with dots": r"to be a dataset or an existing file \(got '\.\./\.\./minesweeper'\)",
    "misspelt name": r"did you mean 'minesweeper'\?",
    "absent dataset": r"raw files of 'wordnet30' under .*--data-root",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_named_and_leaves_nothing(tmp_path: Path, kind: str) -> None:
    options = SourceOptions.model_validate(bad(tmp_path, kind))
    with pytest.raises(UserError, match=BAD[kind]) as caught:
        ingest(options, tmp_path / "out" / "store")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


# Train, validation and test nodes of the first split, as published; reed98 is split at random.
PART_SIZES = {
    "minesweeper": [5000, 2500, 2500],
    "tolokers": [5879, 2939, 2940],
    "cornell": [87, 59, 37],
    "wisconsin": [120, 80, 51],
    "actor": [3648, 2432, 1520],
    "chameleon": [1092, 729, 456],
    "squirrel": [2496, 1664, 1041],
    "squirrel-filtered": [1053, 718, 452],
    "cora-geom": [1192, 796, 497],
    "citeseer-geom": [1596, 1065, 666],
    "reed98": [432, 217, 216],
}
#: Their dense features would take gigabytes: the counts are read off the sparse arrays instead.
WIDE = ("coauthor-cs", "coauthor-physics")
needs_data = pytest.mark.skipif(not DATA_ROOT.is_dir(), reason="no benchmark files beside this repository")
AT_HAND = [entry.name for entry in PUBLISHED if raw_file(entry, DATA_ROOT) is not None]


@needs_data
@pytest.mark.parametrize("name", [name for name in AT_HAND if name not in WIDE])
def test_published_datasets(name: str) -> None:
    entry = BY_NAME[name]
    before = sorted(str(path) for path in (DATA_ROOT / entry.folder).rglob("*"))
    with read_source(SourceOptions(source=name, data_root=DATA_ROOT)) as (graph, report):
        assert graph.csr.num_nodes == entry.nodes
        assert report.edges.undirected_edges == entry.edges
        assert graph.features.shape[1] == entry.features
        assert graph.num_classes == entry.classes
        assert len(graph.splits) == entry.splits or entry.splits == 0
        if name in PART_SIZES:
            assert list(report.split_sizes[0].values()) == PART_SIZES[name]
    assert sorted(str(path) for path in (DATA_ROOT / entry.folder).rglob("*")) == before


@needs_data
@pytest.mark.parametrize("name", [name for name in AT_HAND if name in WIDE])
def test_published_datasets_with_wide_features(name: str) -> None:
    entry = BY_NAME[name]
    raw = raw_file(entry, DATA_ROOT)
    assert raw is not None
    arrays = load_arrays(raw)
    size = int(arrays["adj_shape"][0])
    rows = np.repeat(np.arange(size), np.diff(arrays["adj_indptr"]))
    _, edges = clean_edges(rows, arrays["adj_indices"].astype(np.int64), size)
    assert (size, edges.undirected_edges) == (entry.nodes, entry.edges)
    assert (int(arrays["attr_shape"][1]), len(np.unique(arrays["labels"]))) == (entry.features, entry.classes)


def test_catalogue_names_are_plain_words() -> None:
    assert len(BY_NAME) == len(PUBLISHED)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in BY_NAME)


def test_a_board_of_another_side_is_generated_even_beside_the_published_one(tmp_path: Path) -> None:
    raw = tmp_path / "heterophilous" / "minesweeper" / "raw" / "minesweeper.npz"
    raw.parent.mkdir(parents=True)
    raw.touch()
    assert not is_generated(SourceOptions(data_root=tmp_path))
    assert is_generated(SourceOptions(data_root=tmp_path, side=12))
