"""Malformed input of every kind: exit code 2, one line that names the culprit, and nothing left behind.

Each row of the tables is one mistake. The command line runs in this process: what is tested is what it says.
"""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch

from jobs import cli
from pipeline.config.settings import SourceOptions
from pipeline.ingest.stage import ingest
from pipeline.store.access import open_store
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from tests.pipeline.conftest import tiny_config

EDGES = "0,1\n1,2\n2,3\n3,0\n"
FEATURES = np.eye(4, dtype=np.float32)
OUT = "out"

# A text as --config, and what is said about it.
CONFIGS = {
    "[1, 2]": "Expected keys and values at the top",
    "words": "Expected keys and values at the top",
    "3": "Expected keys and values at the top",
    "a: [1": "not valid YAML",
    "a: {b": "not valid YAML",
    "\tmodel: {}": "not valid YAML",
    "model:\n\theads: 3": "not valid YAML",
    "model: 'x": "not valid YAML",
    "model: *nothing": "not valid YAML",
    "!!python/object/apply:os.system ['true']": "not valid YAML",
    "model: !!python/name:os.system": "not valid YAML",
    "model: {heads: 1}\n---\nmodel: {heads: 2}": "not valid YAML",
    "model: {heads: 1, heads: 2}": "each key once (got 'heads' twice)",
    "model: {heads: 1}\nmodel: {heads: 2}": "each key once (got 'model' twice)",
    "? [a, b]\n: 1": "run.yaml",
    "[" * 200: "levels of nesting",
    "{a: " * 30 + "1" + "}" * 30: "levels of nesting",
    "a: &a 1\nb: [" + "*a, " * 40 + "]": "aliases",
    "a: 2001-99-99": "not valid YAML",
    "a: " + "9" * 5000: "not valid YAML",
    "x" * (2**20 + 1): "at most 1,048,576 characters",
    "modle: {}": "unknown key 'modle'; did you mean 'model'",
    "model: {head: 3}": "did you mean 'model.heads'",
    "model: {heads: {a: 1}}": "unknown key 'model.heads.a'",
    "model: 3": "'model'",
    "model: [heads]": "'model'",
    "model: null": "'model'",
    "model: {heads: }": "'model.heads'",
    "model: {heads: two}": "'model.heads'",
    "model: {heads: 1.5}": "'model.heads'",
    "model: {heads: [1]}": "'model.heads'",
    "model: {residual: perhaps}": "'model.residual'",
    "model: {name: sprase}": "'model.name'",
    "model: {inception_kernels: 3}": "'model.inception_kernels'",
    "model: {inception_kernels: [0]}": "'model.inception_kernels.0'",
    "train: {optimiser: sgd}": "'train.optimiser'",
    "train: {metric: f1}": "'train.metric'",
    "train: {precision: float16}": "'train.precision'",
    "train: {learning_rate: .nan}": "'train.learning_rate'",
    "train: {learning_rate: .inf}": "'train.learning_rate' to be a finite number",
    "resources: {workers: 8..2}": "'resources.workers'",
    "resources: {workers: a..b}": "'resources.workers'",
    "resources: {workers: -1}": "'resources.workers'",
    "resources: {workers: 1.5}": "'resources.workers'",
    "positions: {order: random}": "'positions.order'",
    "positions: {depth: deep}": "'positions.depth'",
    "data: {store: 'ftp://host/x'}": "begins with s3://, gs:// or file://",
    "data: {store: 's3://me:pw@bucket/x'}": "a URI without a password",
    "storage: {uri: runs}": "begins with s3:// or gs://",
    "data: {source: 3}": "'data.source'",
    "data: {train_share: 0.8, validation_share: 0.4}": "add up to at most 1 (got 0.8 and 0.4)",
    "data: {link_test_share: 0.6, link_validation_share: 0.5}": "add up to less than 1",
    "output: [a]": "'output'",
}

# A value of --set, and what is said about it.
ASSIGNMENTS = {
    "": "to be KEY=VALUE",
    "model.heads": "to be KEY=VALUE",
    "=3": "to be KEY=VALUE",
    "model.heads=": "to be followed by a value",
    "model.heads=null": "to be followed by a value",
    "model.heads=[": "to be YAML",
    "model.heads={a: 1, a: 2}": "to be YAML",
    "model.haeds=3": "did you mean 'model.heads'",
    "heads=3": "did you mean 'model.heads'",
    "model=3": "'model'",
    "model.heads=0": "'model.heads'",
    "model.heads=-1": "'model.heads'",
    "model.heads=100000": "at most 1,024, as each head orders and reads every node once more",
    "model.hidden_channels=0": "'model.hidden_channels'",
    "model.hidden_channels=10000000": "at most 65,536",
    "model.kernel_size=0": "'model.kernel_size'",
    "model.kernel_size=100000": "at most 1,024",
    "model.tau=0": "'model.tau'",
    "model.tau=-1": "'model.tau'",
    "model.tau=.inf": "'model.tau'",
    "model.smoothness=-1": "'model.smoothness'",
    "model.smoothness=1000000": "at most 256, as each step reads every edge once more",
    "model.unit_layers=1000000": "at most 256, as each layer reads every node once more",
    "model.pool_layers=-2": "'model.pool_layers'",
    "model.propagated_features=100000": "at most 256",
    "model.dropout=1": "'model.dropout'",
    "model.dropout=-0.1": "'model.dropout'",
    "model.feature_dropout=.nan": "'model.feature_dropout'",
    "model.neighbours=0": "'model.neighbours'",
    "model.positions=none": "'model.positions'",
    "positions.truncate=0": "'positions.truncate'",
    "positions.truncate=1000000000": "at most 64, as each hop is a column of every node",
    "positions.batch_sources=513": "at most 512",
    "positions.landmarks=0": "'positions.landmarks'",
    "positions.refinements=1000": "at most 100",
    "positions.seed=-1": "'positions.seed'",
    "segments.length=1": "'segments.length'",
    "segments.length=65": "at most 64, as the edges in a segment are bits of its words",
    "segments.shard_rows=0": "'segments.shard_rows'",
    "train.epochs=0": "'train.epochs'",
    "train.batch_size=0": "'train.batch_size'",
    "train.learning_rate=0": "'train.learning_rate'",
    "train.weight_decay=-1": "'train.weight_decay'",
    "train.clip=.inf": "'train.clip'",
    "train.seed=18446744073709551616": "at most 4,294,967,295, as seeds are 32-bit numbers",
    "train.time_budget=0": "'train.time_budget'",
    "train.time_budget=.inf": "'train.time_budget'",
    "train.validate_every=0": "'train.validate_every'",
    "train.checkpoint_seconds=-1": "'train.checkpoint_seconds'",
    "resources.cpus_per_worker=0": "'resources.cpus_per_worker'",
    "resources.gpus_per_worker=-1": "'resources.gpus_per_worker'",
    "resources.workers=1000000": "at most 10,000 workers",
    "data.side=1": "'data.side'",
    "data.side=1000000": "at most 46,340",
    "data.num_nodes=1000000000000000": "at most 2,147,483,647, as nodes are numbered in 32 bits",
    "data.num_graphs=3": "'data.num_graphs'",
    "data.num_splits=0": "'data.num_splits'",
    "data.split=-1": "'data.split'",
    "data.protocol=none": "'data.protocol'",
    "data.link_negatives=0": "'data.link_negatives'",
    "storage.cache_gib=0": "'storage.cache_gib'",
    "storage.retry_seconds=.nan": "'storage.retry_seconds'",
}

Writer = Callable[[Path], object]


def text(content: str | bytes) -> Writer:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def npz(**arrays: object) -> Writer:
    return lambda path: np.savez(path, **arrays)  # type: ignore[arg-type]


def masks(**changed: np.ndarray) -> Writer:
    good = {
        f"{part}_masks": np.eye(4, dtype=bool)[number][None]
        for number, part in enumerate(("train", "val", "test"))
    }
    graph = {
        "node_features": FEATURES,
        "node_labels": np.array([0, 1, 0, 1]),
        "edges": np.array([[0, 1], [1, 2]]),
    }
    return npz(**{**graph, **good, **changed})


def huge_header(path: Path) -> None:
    """An array whose header promises 146 TiB."""
    import io
    import zipfile

    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (10**7, 2 * 10**6)}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("edges.npy", head.getvalue() + b"\0" * 64)


def cut_parquet(path: Path) -> None:
    pq.write_table(pa.table({"a": [0, 1], "b": [1, 2]}), path)
    path.write_bytes(path.read_bytes()[:-9])


# A graph to ingest: its name, how it is written, and what is said about it.
GRAPHS: dict[str, tuple[str, Writer, str]] = {
    "empty file": ("g.csv", text(""), "got an empty file"),
    "header only": ("g.csv", text("a,b\n"), "to hold edges"),
    "blank lines": ("g.csv", text("\n\n\n"), "to hold edges"),
    "comments only": ("g.csv", text("# one\n# two\n"), "to hold edges"),
    "one column": ("g.csv", text("a\n1\n2\n"), "two columns (got 1"),
    "one node": ("g.csv", text("0,0\n"), "two nodes or more (got 1)"),
    "negative id": ("g.csv", text("0,1\n1,-2\n"), "(got -2 in row 2)"),
    "float ids": ("g.csv", text("a,b\n0.5,1\n"), "integers or text"),
    "ragged rows": ("g.csv", text("0,1\n1,2,3\n"), "Expected 2 columns, got 3"),
    "a gap": ("g.csv", text("a,b\n0,1\n,2\n"), "no gaps (got one in row 2)"),
    "NUL bytes": ("g.csv", text(b"a,b\nx\0,y\ny,z\n"), "NUL byte in row 1"),
    "not UTF-8": ("g.csv", text(b"a,b\n\xff\xfe,y\ny,z\n"), "g.csv"),
    "no gzip": ("g.csv.gz", text(EDGES), "g.csv.gz"),
    "cut gzip": ("g.csv.gz", text(b"\x1f\x8b\x08\0\0\0\0\0\0\x03"), "g.csv.gz"),
    "cut parquet": ("g.parquet", cut_parquet, "a complete edge list"),
    "no parquet": ("g.parquet", text("words"), "a complete edge list"),
    "parquet of floats": (
        "g.parquet",
        lambda path: pq.write_table(pa.table({"a": [0.5], "b": [1.0]}), path),
        "integers or text",
    ),
    "parquet of lists": (
        "g.parquet",
        lambda path: pq.write_table(pa.table({"a": [[0]], "b": [[1]]}), path),
        "integers or text",
    ),
    "parquet without rows": (
        "g.parquet",
        lambda path: pq.write_table(
            pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())}), path
        ),
        "to hold edges",
    ),
    "unknown ending": ("g.xyz", text(EDGES), "to end in one of"),
    "no npz": ("g.npz", text("words"), "a complete .npz file"),
    "empty npz file": ("g.npz", text(""), "a complete .npz file"),
    "npz without arrays": ("g.npz", npz(), "to hold 'edges'"),
    "npz of other arrays": ("g.npz", npz(x=FEATURES), "to hold 'edges'"),
    "pickled npz": ("g.npz", npz(edges=np.array([{}], dtype=object)), "plain arrays"),
    "npz of three columns": (
        "g.npz",
        npz(edges=np.zeros((5, 3), dtype=int)),
        "[m, 2] or [2, m] (got (5, 3))",
    ),
    "npz of two rows": (
        "g.npz",
        npz(node_features=FEATURES, edges=np.zeros((2, 3), dtype=int)),
        "shape [m, 2] (got (2, 3))",
    ),
    "npz of flat edges": ("g.npz", npz(edges=np.zeros(6, dtype=int)), "shape"),
    "npz of float edges": ("g.npz", npz(edges=np.array([[0.0, 1.0]])), "integers"),
    "npz of text edges": ("g.npz", npz(edges=np.array([["a", "b"]])), "g.npz"),
    "npz edge out of range": ("g.npz", npz(edges=np.array([[0, 9]]), features=FEATURES), "(got 9 in row 1)"),
    "npz negative edge": (
        "g.npz",
        npz(edges=np.array([[0, -1], [1, 2], [2, 3]]), features=FEATURES),
        "(got -1 in row 1)",
    ),
    "npz labels too few": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=FEATURES, labels=np.array([0])),
        "one for each of 4 nodes",
    ),
    "npz labels too large": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=FEATURES, labels=np.array([0, 1, 2, 99])),
        "(got 99 in row 4)",
    ),
    "npz complex features": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=FEATURES * 1j),
        "to be numbers (got complex",
    ),
    "npz nan features": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=np.full((4, 1), np.nan)),
        "to be finite",
    ),
    "npz wide features": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=np.zeros((4, 2, 2))),
        "a row for each of 4 nodes",
    ),
    "npz wrong splits": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=FEATURES, splits=np.array([[0, 1, 2, 7]])),
        "to be 0, 1, 2 or −1 (got 7",
    ),
    "npz short splits": (
        "g.npz",
        npz(edges=np.array([[0, 1]]), features=FEATURES, splits=np.zeros((1, 3), dtype=np.int8)),
        "a place for each of 4 nodes",
    ),
    "short masks": ("g.npz", masks(train_masks=np.ones((1, 3), dtype=bool)), "'train_masks'"),
    "masks of other splits": ("g.npz", masks(val_masks=np.zeros((2, 4), dtype=bool)), "'val_masks'"),
    "cubic masks": ("g.npz", masks(test_masks=np.zeros((1, 4, 2), dtype=bool)), "'test_masks'"),
    "text masks": ("g.npz", masks(test_masks=np.array([["a", "b", "c", "d"]])), "'test_masks'"),
    "masks that overlap": (
        "g.npz",
        masks(val_masks=np.ones((1, 4), dtype=bool)),
        "not to overlap (got node 0",
    ),
    "header of 146 TiB": ("g.npz", huge_header, "a complete .npz file"),
    "half a matrix": (
        "g.npz",
        npz(adj_indptr=np.array([0, 1]), adj_data=np.array([1])),
        "a complete matrix 'adj_…'",
    ),
    "no mat": ("g.mat", text("words"), "a complete .mat file"),
    "mat of other content": (
        "g.mat",
        lambda path: scipy.io.savemat(path, {"B": np.eye(2)}),
        "(got B instead of 'A' and 'local_info')",
    ),
    "empty metis": ("g.metis", text(""), "an empty file"),
    "metis of words": ("g.metis", text("hello world\n"), "numbers of nodes and edges"),
    "metis of comments": ("g.metis", text("% one\n% two\n"), "numbers of nodes and edges"),
    "metis too few lines": ("g.metis", text("3 1\n2\n1\n"), "a line for each of 3 nodes (got 2)"),
    "metis too many lines": ("g.metis", text("2 1\n2\n1\n1\n"), "after the lines of 2 nodes"),
    "metis wrong edges": ("g.metis", text("2 5\n2\n1\n"), "list 5 edges twice"),
    "metis node 0": ("g.metis", text("2 1\n0\n1\n"), "nodes 1…2 (got 0"),
    "metis node 9": ("g.metis", text("2 1\n9\n1\n"), "nodes 1…2 (got 9"),
    "metis one way": ("g.metis", text("3 1\n2 3\n\n\n"), "in the lines of both"),
    "metis weights": ("g.graph", text("2 1 1\n2 5\n1 5\n"), "without weights"),
    "metis one node": ("g.metis", text("1 0\n\n"), "two nodes or more"),
    "no networkit": ("g.nkb", text("words that are no graph of networkit"), "g.nkb"),
    "empty networkit": ("g.nkb", text(""), "an empty file"),
}

# Flags beside the edges 0-1-2-3-0 in e.csv, and what is said: {here} is the directory.
NODES: dict[str, tuple[str, Writer, tuple[str, ...], str]] = {
    "no npy": ("x.npy", text("words"), ("--features", "x.npy"), "a complete .npy file"),
    "empty npy": ("x.npy", text(""), ("--features", "x.npy"), "an empty file"),
    "scalar npy": ("x.npy", lambda path: np.save(path, 3), ("--features", "x.npy"), "shape ()"),
    "pickled npy": (
        "x.npy",
        lambda path: np.save(path, np.array([{}] * 4, dtype=object)),
        ("--features", "x.npy"),
        "x.npy",
    ),
    "too few rows": (
        "x.npy",
        lambda path: np.save(path, FEATURES[:2]),
        ("--features", "x.npy"),
        "ids in 0…1 (got 2",
    ),
    "complex": ("x.npy", lambda path: np.save(path, FEATURES * 1j), ("--features", "x.npy"), "got complex"),
    "text": (
        "x.npy",
        lambda path: np.save(path, np.array(["a"] * 4)),
        ("--features", "x.npy"),
        "to be numbers",
    ),
    "infinite": (
        "x.npy",
        lambda path: np.save(path, np.full((4, 1), np.inf)),
        ("--features", "x.npy"),
        "to be finite",
    ),
    "beyond float32": (
        "x.npy",
        lambda path: np.save(path, np.full((4, 1), 1e300)),
        ("--features", "x.npy"),
        "to be finite",
    ),
    "dates": (
        "x.npy",
        lambda path: np.save(path, np.zeros(4, dtype="M8[s]")),
        ("--features", "x.npy"),
        "to be numbers",
    ),
    "many labels": (
        "y.npy",
        lambda path: np.save(path, np.zeros(9, dtype=int)),
        ("--labels", "y.npy"),
        "to have 4 rows",
    ),
    "fractions": (
        "y.npy",
        lambda path: np.save(path, np.array([0, 0.5, 1, 1])),
        ("--labels", "y.npy"),
        "(got 0.5 in row 2)",
    ),
    "large floats": (
        "y.npy",
        lambda path: np.save(path, np.array([0, 1e300, 1, 1])),
        ("--labels", "y.npy"),
        "(got 1e+300 in row 2)",
    ),
    "large integers": (
        "y.npy",
        lambda path: np.save(path, np.array([0, 2**64 - 1, 1, 1], dtype=np.uint64)),
        ("--labels", "y.npy"),
        "classes 0…C−1",
    ),
    "minus two": (
        "y.npy",
        lambda path: np.save(path, np.array([0, -2, 1, 1])),
        ("--labels", "y.npy"),
        "(got -2 in row 2)",
    ),
    "complex labels": (
        "y.npy",
        lambda path: np.save(path, np.ones(4) * 1j),
        ("--labels", "y.npy"),
        "to be integers",
    ),
    "square labels": (
        "y.npy",
        lambda path: np.save(path, np.eye(4, dtype=int)),
        ("--labels", "y.npy"),
        "one for each of 4 nodes",
    ),
    "no label column": (
        "y.csv",
        text("id,class\n0,1\n1,0\n2,1\n3,1\n"),
        ("--labels", "y.csv"),
        "--label-column",
    ),
    "other label column": (
        "y.csv",
        text("label\n0\n1\n0\n1\n"),
        ("--labels", "y.csv", "--label-column", "c"),
        "to have column 'c'",
    ),
    "other id column": (
        "y.csv",
        text("label\n0\n1\n0\n1\n"),
        ("--labels", "y.csv", "--id-column", "c"),
        "to have column 'c'",
    ),
    "other split column": (
        "y.csv",
        text("label\n0\n1\n0\n1\n"),
        ("--labels", "y.csv", "--split-column", "c"),
        "to have column 'c'",
    ),
    "twice an id": ("y.csv", text("id,label\n0,1\n0,0\n2,1\n3,1\n"), ("--labels", "y.csv"), "'0' twice"),
    "missing id": (
        "y.csv",
        text("id,label\n0,1\n1,0\n2,1\n9,1\n"),
        ("--labels", "y.csv"),
        "ids of the node table",
    ),
    "gap in ids": ("y.csv", text("id,label\n0,1\n,0\n2,1\n3,1\n"), ("--labels", "y.csv"), "a gap"),
    "unknown part": (
        "y.csv",
        text("label,split\n0,train\n1,dev\n0,val\n1,test\n"),
        ("--labels", "y.csv"),
        "(got 'dev' in row 2)",
    ),
    "unlabelled part": (
        "y.csv",
        text("label,split\n0,train\n,val\n0,val\n1,test\n"),
        ("--labels", "y.csv"),
        "to have a label (got none for node 1)",
    ),
    "ragged table": ("y.csv", text("label,x\n0,1\n1\n"), ("--labels", "y.csv"), "equal rows"),
    "dates as labels": (
        "y.parquet",
        lambda path: pq.write_table(pa.table({"label": pa.array([0] * 4, pa.timestamp("s"))}), path),
        ("--labels", "y.parquet"),
        "to hold classes",
    ),
    "gap in features": ("x.csv", text("a\n1\n\n3\n4\n"), ("--features", "x.csv"), "x.csv"),
    "text features": ("x.csv", text("a\nu\nv\nw\nx\n"), ("--features", "x.csv"), "to hold numbers"),
    "ragged lists": (
        "x.parquet",
        lambda path: pq.write_table(pa.table({"v": [[1.0], [1.0, 2.0], [1.0], [1.0]]}), path),
        ("--features", "x.parquet"),
        "numbers each (got 2 in row 2)",
    ),
    "unknown ending": ("x.txt", text("1\n"), ("--features", "x.txt"), "to end in .npy"),
    "no such features": ("x.npy", text(""), ("--features", "nothing.npy"), "to be a file"),
    "same column twice": (
        "x.npy",
        text(""),
        ("--source-column", "f0", "--target-column", "f0"),
        "'f0' twice",
    ),
    "unknown column": ("x.npy", text(""), ("--source-column", "from"), "to have column 'from'"),
    "nodes too few": ("x.npy", text(""), ("--nodes", "2"), "ids in 0…1 (got 2"),
    "nodes of 50 digits": ("x.npy", text(""), ("--nodes", "9" * 50), "at most 2,147,483,647"),
    "long segments": ("x.npy", text(""), ("--length", "5"), "at most the 4 nodes"),
    "absent split": ("x.npy", text(""), ("--split", "10", "--length", "3"), "below 10"),
}

# Whole commands, and what is said: {here} is the directory, {store} a small store, {file} a file.
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "no source": (("preprocess", "--store", "{here}/out"), "name a dataset"),
    "no plan": (("plan",), "name a dataset"),
    "unknown source": (("preprocess", "minesweper", "--store", "{here}/out"), "did you mean 'minesweeper'"),
    "missing path": (("preprocess", "{here}/nothing.csv", "--store", "{here}/out"), "an existing file"),
    "directory as graph": (("preprocess", "{here}", "--store", "{here}/out"), "an existing file"),
    "absent data": (
        ("preprocess", "wordnet30", "--data-root", "{here}", "--store", "{here}/out"),
        "raw files of 'wordnet30'",
    ),
    "large board": (
        ("preprocess", "minesweeper", "--side", "1000000", "--store", "{here}/out"),
        "at most 46,340",
    ),
    "board beyond memory": (
        ("preprocess", "minesweeper", "--side", "46000", "--store", "{here}/out"),
        "GiB of memory",
    ),
    "small board": (("preprocess", "minesweeper", "--side", "1", "--store", "{here}/out"), "--side"),
    "many nodes": (
        ("preprocess", "power-law", "--nodes", "1000000000000000", "--store", "{here}/out"),
        "at most 2,147,483,647",
    ),
    "nodes beyond memory": (
        ("preprocess", "power-law", "--nodes", "2000000000", "--store", "{here}/out"),
        "GiB of memory",
    ),
    "long segment": (
        ("preprocess", "minesweeper", "--side", "2", "--store", "{here}/out"),
        "at most the 4 nodes",
    ),
    "split beyond": (
        ("preprocess", "minesweeper", "--side", "9", "--split", "10", "--store", "{here}/out"),
        "below 10",
    ),
    "split of power law": (
        ("preprocess", "power-law", "--nodes", "99", "--split", "1", "--store", "{here}/out"),
        "below 1",
    ),
    "directed collection": (
        ("preprocess", "motifs", "--directed", "--store", "{here}/out"),
        "an undirected collection",
    ),
    "store on a file": (("preprocess", "minesweeper", "--store", "{file}"), "to be a directory"),
    "store below a file": (("preprocess", "minesweeper", "--store", "{file}/store"), "to be a directory"),
    "store on a device": (("preprocess", "minesweeper", "--store", "/dev/null"), "to be a directory"),
    "store with a long name": (
        ("preprocess", "minesweeper", "--store", "{here}/" + "x" * 300),
        "'data.store'",
    ),
    "store in proc": (("preprocess", "minesweeper", "--store", "/proc/nothing/store"), "'data.store'"),
    "plot on a file": (
        ("preprocess", "minesweeper", "--side", "9", "--store", "{here}/out", "--plot", "{file}"),
        "--plot",
    ),
    "another graph there": (
        ("preprocess", "minesweeper", "--side", "9", "--store", "{store}"),
        "got another",
    ),
    "no model": (("train",), "Missing argument"),
    "unknown model": (("train", "sprase", "--data", "minesweeper"), "did you mean 'sparse'"),
    "no data": (("train", "sparse", "--output", "{here}/out"), "name a dataset or a file with --data"),
    "mistyped store": (
        ("train", "sparse", "--store", "{here}/stroe", "--output", "{here}/out"),
        "(got nothing there): correct the path",
    ),
    "output on a file": (
        ("train", "gcn", "--store", "{store}", "--output", "{file}"),
        "'output' to be a directory",
    ),
    "output on a device": (
        ("train", "gcn", "--store", "{store}", "--output", "/dev/null"),
        "'output' to be a directory",
    ),
    "output with a long name": (
        ("train", "gcn", "--store", "{store}", "--output", "{here}/" + "x" * 300),
        "'output'",
    ),
    "output in proc": (("train", "gcn", "--store", "{store}", "--output", "/proc/nothing"), "'output'"),
    "no GPU": (
        ("train", "segment", "--store", "{store}", "--gpus-per-worker", "1", "--output", "{here}/out"),
        "the GPUs of this machine",
    ),
    "thousand workers": (
        ("train", "segment", "--store", "{store}", "--workers", "1000", "--output", "{here}/out"),
        "'resources.workers' to be at most",
    ),
    "workers beyond heads": (
        (
            "train",
            "sparse",
            "--store",
            "{store}",
            "--workers",
            "8",
            "--set",
            "model.heads=2",
            "--output",
            "{here}/out",
        ),
        "at most 2, the heads",
    ),
    "absent split": (
        ("train", "gcn", "--store", "{store}", "--set", "data.split=5", "--output", "{here}/out"),
        "below 2",
    ),
    "absent splits": (
        ("train", "gcn", "--store", "{store}", "--splits", "3", "--output", "{here}/out"),
        "below 2",
    ),
    "no splits": (
        ("train", "gcn", "--store", "{store}", "--splits", "0", "--output", "{here}/out"),
        "--splits",
    ),
    "no seeds": (("train", "gcn", "--store", "{store}", "--seeds", "0", "--output", "{here}/out"), "--seeds"),
    "long kernel": (
        ("train", "segment", "--store", "{store}", "--set", "model.kernel_size=9", "--output", "{here}/out"),
        "the length of a segment (got 9)",
    ),
    "long segments": (
        ("train", "segment", "--store", "{store}", "--set", "segments.length=40", "--output", "{here}/out"),
        "at most the 36 nodes",
    ),
    "no features": (
        (
            "train",
            "sparse",
            "--store",
            "{store}",
            "--set",
            "model.node_features=false",
            "--set",
            "model.structure_features=false",
            "--output",
            "{here}/out",
        ),
        "(got neither)",
    ),
    "weights beyond memory": (
        (
            "train",
            "sparse",
            "--store",
            "{store}",
            "--set",
            "model.hidden_channels=65536",
            "--set",
            "model.unit_layers=200",
            "--output",
            "{here}/out",
        ),
        "GiB of memory",
    ),
    "no labels": (
        ("train", "gcn", "--store", "{unlabelled}", "--output", "{here}/out"),
        "Expected labels in",
    ),
    "no labels in a part": (
        ("train", "gcn", "--store", "{halflabelled}", "--output", "{here}/out"),
        "the validation part of split 0",
    ),
    "graphs of a graph": (
        ("train", "gcn", "--store", "{store}", "--task", "graph", "--output", "{here}/out"),
        "'data.task' to be node or link",
    ),
    "gin of a graph": (
        ("train", "gcn", "--store", "{store}", "--protocol", "gin", "--output", "{here}/out"),
        "'data.protocol' to be holdout",
    ),
    "links of segments": (
        ("train", "segment", "--store", "{store}", "--task", "link", "--output", "{here}/out"),
        "segment, whose windows",
    ),
    "missing config": (("train", "gcn", "--config", "{here}/nothing.yaml"), "cannot read the file"),
    "directory as config": (("train", "gcn", "--config", "{here}"), "Expected a file (got a directory)"),
    "device as config": (("train", "gcn", "--config", "/dev/zero"), "Expected a file (got a device)"),
    "pipe as config": (("train", "gcn", "--config", "{pipe}"), "Expected a file (got a pipe)"),
    "binary config": (("train", "gcn", "--config", "{binary}"), "Expected UTF-8 text"),
    "no run": (("predict",), "'--run' and '--checkpoint' (got none)"),
    "both": (("predict", "--run", "a", "--checkpoint", "b"), "(got both)"),
    "missing checkpoint": (("predict", "--checkpoint", "{here}/nothing"), "checkpoint"),
    "predictions on a directory": (
        ("predict", "--checkpoint", "{checkpoint}", "--out", "{here}"),
        "'--out' to be a file",
    ),
    "predictions below a file": (
        ("predict", "--checkpoint", "{checkpoint}", "--out", "{file}/x.parquet"),
        "'--out'",
    ),
    "predictions of no store": (
        ("predict", "--checkpoint", "{checkpoint}", "--store", "{here}"),
        "a graph store",
    ),
    "predictions of another store": (
        ("predict", "--checkpoint", "{checkpoint}", "--store", "{unlabelled}", "--out", "{here}/out"),
        "{checkpoint}",
    ),
    "checkpoint with a password": (("predict", "--checkpoint", "s3://me:pw@bucket/x"), "without a password"),
    "compare nothing": (("compare", "--output", "{here}/out"), "{here}/out"),
    "report on a directory": (
        ("compare", "--output", "{here}/out", "--out", "{here}"),
        "'--out' to be a file",
    ),
    "demo on a file": (("demo", "--output", "{file}"), "'--output' to be a directory"),
    "large demo": (("demo", "--side", "100000", "--output", "{here}/out"), "--side"),
    "unknown command": (("trian",), "trian"),
    "unknown flag": (("train", "gcn", "--epoch", "3"), "--epoch"),
    "word as number": (("train", "gcn", "--epochs", "many"), "--epochs"),
    "info on nothing": (("datasets", "info", "{here}/nothing"), "an existing file"),
    "submit without a cluster": (
        ("submit", "train", "{config}", "--address", "http://127.0.0.1:9"),
        "127.0.0.1:9",
    ),
    "submit to no address": (("submit", "train", "{config}", "--address", "here"), "http address"),
}

# A change to a good store, and what `cocn datasets info` says.
STORES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda store: (store / "manifest.json").unlink(), "manifest.json"),
    "empty manifest": (lambda store: (store / "manifest.json").write_text(""), "manifest.json"),
    "manifest of words": (lambda store: (store / "manifest.json").write_text("words"), "manifest.json"),
    "manifest of a list": (lambda store: (store / "manifest.json").write_text("[]"), "manifest.json"),
    "manifest of bytes": (lambda store: (store / "manifest.json").write_bytes(b"\xff\xfe"), "manifest.json"),
    "deep manifest": (lambda store: (store / "manifest.json").write_text("[" * 100_000), "manifest.json"),
    "changed manifest": (lambda store: edit(store / "manifest.json", "36", "37"), "its own digest"),
    "missing file": (lambda store: (store / "nodes/labels.arrow").unlink(), "labels.arrow"),
    "short file": (lambda store: cut(store / "nodes/labels.arrow"), "labels.arrow"),
    "changed file": (lambda store: flip(store / "nodes/labels.arrow"), "labels.arrow"),
    "empty file": (lambda store: (store / "edges/indices.arrow").write_text(""), "indices.arrow"),
    "file of words": (lambda store: (store / "edges/indptr.arrow").write_text("words"), "indptr.arrow"),
    "directory as file": (
        lambda store: ((store / "nodes/labels.arrow").unlink(), (store / "nodes/labels.arrow").mkdir()),
        "labels.arrow",
    ),
}

# A change to a good checkpoint, and what `cocn predict` says.
CHECKPOINTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no weights": (lambda place: (place / "model.safetensors").unlink(), "model.safetensors"),
    "empty weights": (lambda place: (place / "model.safetensors").write_text(""), "model.safetensors"),
    "short weights": (lambda place: cut(place / "model.safetensors"), "model.safetensors"),
    "weights of words": (
        lambda place: (place / "model.safetensors").write_text("words " * 9),
        "model.safetensors",
    ),
    "no configuration": (lambda place: (place / "config.json").unlink(), "config.json"),
    "configuration of words": (lambda place: (place / "config.json").write_text("words"), "config.json"),
    "configuration of nothing": (lambda place: (place / "config.json").write_text("{}"), "config.json"),
}

# What the environment may hold.
ENVIRONMENT: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "tracker of no kind": ({"MLFLOW_TRACKING_URI": "ftp://nowhere"}, ("compare",), "ftp"),
    "tracker away": (
        {"MLFLOW_TRACKING_URI": "http://127.0.0.1:9", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"},
        ("compare",),
        "127.0.0.1:9",
    ),
    "no token file": (
        {"RAY_AUTH_TOKEN_PATH": "/nothing"},
        ("jobs", "list", "--address", "http://127.0.0.1:9"),
        "RAY_AUTH_TOKEN_PATH",
    ),
    "no data root": (
        {"COCN_DATA_ROOT": "/nothing"},
        ("preprocess", "wordnet30", "--store", "{here}/out"),
        "wordnet30",
    ),
}


def edit(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new, 1))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Good stores and a good checkpoint, which the mistakes are made beside."""
    here = tmp_path_factory.mktemp("good")
    torch.set_num_threads(1)
    edges = here / "e.csv"
    edges.write_text(EDGES)
    half = here / "half.csv"
    half.write_text("label,split\n0,train\n1,train\n,\n1,test\n")
    board = SourceOptions(source="minesweeper", side=6, num_splits=2)
    store = ingest(board, here / "store").store
    ingest(SourceOptions(source=str(edges)), here / "unlabelled")
    ingest(SourceOptions(source=str(edges), labels=half), here / "halflabelled")
    training = here / "training"
    training.mkdir()
    config = tiny_config(here, model__name="mlp", train__epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train_worker(TrainJob(config, store.place, training))
    checkpoint = next(training.glob("best-*"))
    (here / "run.yaml").write_text(
        f"output: {here}/runs\ndata: {{store: {here}/store, source: minesweeper}}\n"
    )
    (here / "file").write_text("a file")
    (here / "binary").write_bytes(b"\xff\xfe\x00")
    os.mkfifo(here / "pipe")
    return {
        "store": here / "store",
        "unlabelled": here / "unlabelled",
        "halflabelled": here / "halflabelled",
        "checkpoint": checkpoint,
        "config": here / "run.yaml",
        "file": here / "file",
        "binary": here / "binary",
        "pipe": here / "pipe",
    }


@pytest.fixture
def mistake(
    tmp_path: Path,
    places: dict[str, Path],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., str]:
    """Runs a command and returns the one line that it says."""

    def run(*words: str) -> str:
        monkeypatch.chdir(tmp_path)
        before = sorted(tmp_path.rglob("*"))
        filled = [word.replace("{here}", str(tmp_path)) for word in words]
        for name, path in places.items():
            filled = [word.replace(f"{{{name}}}", str(path)) for word in filled]
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            cli.main(filled)
        told = capfd.readouterr()
        assert caught.value.code == 2, told.err
        assert told.out == ""
        assert told.err.startswith("cocn: "), told.err
        assert told.err.count("\n") == 1, told.err
        assert sorted(tmp_path.rglob("*")) == before
        return told.err

    return run


def require(said: str, expected: str, tmp_path: Path, places: dict[str, Path]) -> None:
    for name, path in {"here": tmp_path, **places}.items():
        expected = expected.replace(f"{{{name}}}", str(path))
    assert expected in said


@pytest.mark.parametrize("content", CONFIGS, ids=lambda content: content[:30])
def test_config(content: str, mistake: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(content)
    said = mistake("plan", "minesweeper", "--config", "{here}/run.yaml")
    assert CONFIGS[content] in said
    assert "run.yaml" in said


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_assignment(assignment: str, mistake: Callable[..., str]) -> None:
    assert ASSIGNMENTS[assignment] in mistake("plan", "minesweeper", "--set", assignment)


@pytest.mark.parametrize("kind", GRAPHS)
def test_graph(kind: str, mistake: Callable[..., str], tmp_path: Path) -> None:
    name, write, expected = GRAPHS[kind]
    write(tmp_path / name)
    said = mistake("preprocess", f"{{here}}/{name}", "--store", "{here}/out/store")
    assert expected in said
    assert name in said


@pytest.mark.parametrize("kind", NODES)
def test_nodes(kind: str, mistake: Callable[..., str], tmp_path: Path) -> None:
    name, write, flags, expected = NODES[kind]
    (tmp_path / "e.csv").write_text(EDGES)
    write(tmp_path / name)
    assert expected in mistake("preprocess", "e.csv", "--length", "3", *flags, "--store", "{here}/out/store")


@pytest.mark.parametrize("kind", COMMANDS)
def test_command(kind: str, mistake: Callable[..., str], tmp_path: Path, places: dict[str, Path]) -> None:
    words, expected = COMMANDS[kind]
    require(mistake(*words), expected, tmp_path, places)


@pytest.mark.parametrize("kind", STORES)
def test_store(kind: str, mistake: Callable[..., str], tmp_path: Path, places: dict[str, Path]) -> None:
    change, expected = STORES[kind]
    shutil.copytree(places["store"], tmp_path / "store")
    change(tmp_path / "store")
    assert expected in mistake("datasets", "info", "{here}/store")


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_checkpoint(kind: str, mistake: Callable[..., str], tmp_path: Path, places: dict[str, Path]) -> None:
    change, expected = CHECKPOINTS[kind]
    shutil.copytree(places["checkpoint"], tmp_path / "best-1")
    change(tmp_path / "best-1")
    assert expected in mistake("predict", "--checkpoint", "{here}/best-1", "--out", "{here}/out.parquet")


@pytest.mark.parametrize("kind", ENVIRONMENT)
def test_environment(kind: str, mistake: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    variables, words, expected = ENVIRONMENT[kind]
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)  # of the Ray that other tests started
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected in mistake(*words)


def test_the_good_input_is_good(places: dict[str, Path]) -> None:
    for name in ("store", "unlabelled", "halflabelled"):
        open_store(places[name]).verify()


def test_there_are_at_least_two_hundred_mistakes() -> None:
    tables = (CONFIGS, ASSIGNMENTS, GRAPHS, NODES, COMMANDS, STORES, CHECKPOINTS, ENVIRONMENT)
    assert sum(map(len, tables)) >= 200
