"""Readers of files from strangers: whatever the bytes are, a graph or one line, within time and memory.

Cases are few here; `COCN_FUZZ_CASES=10000 pytest tests/test_fuzz.py` tries as many as asked for.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.cluster.submission import package
from pipeline.config.loading import load_config, parse_assignments
from pipeline.config.settings import SourceOptions
from pipeline.config.yaml_text import TextError, parse_yaml
from pipeline.ingest.archives import read_mat, read_npz
from pipeline.ingest.edgelists import EdgeList, collect_names
from pipeline.ingest.metis import read_metis
from pipeline.ingest.node_tables import ColumnNames, read_node_file
from pipeline.ingest.stage import ingest
from pipeline.runtime.errors import UserError
from pipeline.runtime.memory import peak_memory
from pipeline.storage.files import CorruptFileError, check_inside, parse_sealed_json, read_arrow, write_arrow
from pipeline.store.access import open_store
from pipeline.store.manifest import read_manifest
from pipeline.training.checkpoint import find_checkpoint, read_origin

CASES = int(os.environ.get("COCN_FUZZ_CASES", "25"))
#: What reading a few bytes may take beyond what the tests before it took.
MEMORY_BYTES = 512 * 2**20
fuzzed = settings(
    max_examples=CASES,
    deadline=10_000,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def write_npz(path: Path) -> None:
    np.savez_compressed(
        path, edges=np.arange(8).reshape(4, 2), features=np.eye(8), labels=np.zeros(8, dtype=int)
    )


def write_npy(path: Path) -> None:
    np.save(path, np.eye(4))


def write_mat(path: Path) -> None:
    from scipy.io import savemat
    from scipy.sparse import csc_matrix

    savemat(path, {"A": csc_matrix(np.eye(3)), "local_info": np.ones((3, 4))})


def write_parquet(path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [0, 1, 2], "b": [1, 2, 0]}), path)


def write_text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


# How a good file is written, and who reads it.
READERS: dict[str, tuple[str, Callable[[Path], object], Callable[[Path], object]]] = {
    "csv": ("x.csv", write_text("a,b\n0,1\n1,2\nx,y\n"), lambda path: collect_names(EdgeList(path))),
    "gzip": ("x.csv.gz", write_text("0,1\n"), lambda path: collect_names(EdgeList(path))),
    "parquet": ("x.parquet", write_parquet, lambda path: collect_names(EdgeList(path))),
    "npz": ("x.npz", write_npz, read_npz),
    "mat": ("x.mat", write_mat, read_mat),
    "metis": ("x.metis", write_text("4 3\n2\n1 3\n2 4\n3\n"), read_metis),
    "npy": ("x.npy", write_npy, lambda path: read_node_file(path, "features", ColumnNames())),
    "node table": (
        "x.csv",
        write_text("id,label,split\n0,a,train\n1,b,val\n"),
        lambda path: read_node_file(path, "labels", ColumnNames()),
    ),
    "arrow": ("x.arrow", lambda path: write_arrow(path, pa.table({"a": [1, 2, 3]})), read_arrow),
    "manifest": ("manifest.json", write_text("{}"), lambda path: read_manifest(path.parent)),
    "origin": ("config.json", write_text("{}"), lambda path: read_origin(path.parent)),
    "config": ("x.yaml", write_text("model: {heads: 3}\ntrain: {epochs: 2}\n"), load_config),
}
#: Each case of these starts a process.
APART = ("mat",)
# Cuts, insertions and changes of a good file, or bytes that never were one.
CHANGES = st.one_of(
    st.binary(max_size=400).map(lambda noise: lambda good: noise),
    st.tuples(st.floats(0, 1), st.binary(max_size=12), st.integers(0, 12)).map(
        lambda drawn: (
            lambda good: (
                good[: int(drawn[0] * len(good))] + drawn[1] + good[int(drawn[0] * len(good)) + drawn[2] :]
            )
        )
    ),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", READERS)
def test_a_reader_answers_any_bytes(kind: str, tmp_path: Path) -> None:
    name, write, read = READERS[kind]
    path = tmp_path / name
    write(path)
    good = path.read_bytes()
    before = peak_memory()

    @settings(fuzzed, max_examples=CASES if kind not in APART else min(CASES, 4))
    @given(change=CHANGES)
    def answer(change: Callable[[bytes], bytes]) -> None:
        path.write_bytes(change(good))
        with suppress(UserError):
            read(path)

    answer()
    assert peak_memory() < before + MEMORY_BYTES


@fuzzed
@given(text=st.one_of(st.text(max_size=200), st.text(alphabet="[]{}:,&*a- \n'\"|>!%@#?", max_size=200)))
def test_yaml_is_a_value_or_one_error(text: str) -> None:
    with suppress(TextError):
        parse_yaml(text)
    with suppress(UserError):
        parse_assignments([f"model.heads={text}"])


@fuzzed
@given(
    text=st.one_of(st.binary(max_size=200), st.text(alphabet='[]{}:,"\\0e-1', max_size=200).map(str.encode))
)
def test_sealed_json_is_whole_or_refused(text: bytes) -> None:
    with pytest.raises(UserError):
        parse_sealed_json(text, "here")


def test_a_checkpoint_is_never_unpickled(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("cos\nsystem\n(S'true'\ntR.")
    assert find_checkpoint(tmp_path) == tmp_path
    with pytest.raises(UserError):
        read_origin(tmp_path)


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "nodes/../../outside", "", "a//b", "a\\b", "a\0b"]
)
def test_a_listing_names_nothing_outside(name: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="to list files inside it"):
        check_inside(["nodes/labels.arrow", name], "here")
    store = ingest(SourceOptions(source="minesweeper", side=4), tmp_path / "store").store
    entry = store.manifest.files["nodes/labels.arrow"]
    store.manifest.model_copy(update={"files": {**store.manifest.files, name: entry}}).write(
        tmp_path / "store"
    )
    with pytest.raises(CorruptFileError, match="to list files inside it"):
        open_store(tmp_path / "store")


def test_a_linked_directory_is_no_part_of_a_store(tmp_path: Path) -> None:
    ingest(SourceOptions(source="minesweeper", side=4), tmp_path / "store")
    (tmp_path / "store" / "nodes").rename(tmp_path / "elsewhere")
    (tmp_path / "store" / "nodes").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptFileError, match=r"got a link"):
        open_store(tmp_path / "store")


def test_a_link_is_not_sent_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "__init__.py").write_text("")
    (tmp_path / "strange" / "link.py").symlink_to(tmp_path / "secret")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pipeline.cluster.submission._PACKAGES", ("strange",))
    with package() as directory:
        assert [path.name for path in (directory / "strange").iterdir()] == ["__init__.py"]
