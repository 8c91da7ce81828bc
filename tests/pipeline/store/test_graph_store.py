"""The store: round trip, no-op rerun, parameters that never mix, damage found before use."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel

from pipeline.runtime.errors import UserError
from pipeline.storage.files import (
    CorruptFileError,
    column_array,
    explain_full_disk,
    list_column,
    read_arrow,
    write_arrow,
    write_sealed_json,
)
from pipeline.store.access import create_store, open_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import Manifest, StoreError, describe_graph


class Found(BaseModel):
    factor: int


class Parameters(BaseModel):
    value: int = 1


PATH_GRAPH = CSR(
    indptr=np.array([0, 1, 3, 5, 6], dtype=np.int64), indices=np.array([1, 0, 2, 1, 3, 2], dtype=np.int32)
)


def four_nodes() -> GraphArrays:
    return GraphArrays(
        name="path",
        csr=PATH_GRAPH,
        features=np.arange(8, dtype=np.float32).reshape(4, 2),
        labels=np.array([0, 1, -1, 1]),
        splits=np.array([[0, 1, 2, -1], [2, 1, 0, 0]], dtype=np.int8),
        num_classes=2,
        ids=pa.array(["a", "b", "c", "d"]),
    )


@pytest.fixture
def store(tmp_path: Path) -> GraphStore:
    return create_store(tmp_path / "store", four_nodes(), Parameters())


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "timings.json"
    }


def run_stage(store: GraphStore, value: int = 1, *, replace: bool = False) -> bool:
    with store.begin("double", Parameters(value=value), replace=replace) as stage:
        if stage.done:
            return False
        stage.write_table("labels.arrow", pa.table({"label": store.labels() * 2 * value}))
        stage.commit(Found(factor=2 * value))
        return True


def test_round_trip(store: GraphStore) -> None:
    graph, opened = four_nodes(), open_store(store.path)
    assert np.array_equal(opened.csr().indptr, PATH_GRAPH.indptr)
    assert np.array_equal(opened.csr().indices, PATH_GRAPH.indices)
    assert np.array_equal(opened.features(), graph.features)
    assert np.array_equal(opened.labels(), graph.labels)
    assert np.array_equal(opened.split(1), graph.splits[1])
    ids = opened.ids()
    assert ids is not None
    assert ids.to_pylist() == ["a", "b", "c", "d"]
    assert (opened.num_nodes, opened.manifest.num_edges, opened.num_splits) == (4, 6, 2)


def test_arrays_are_mapped_not_copied(store: GraphStore) -> None:
    features = store.features()
    assert not features.flags.owndata
    assert not features.flags.writeable


def test_same_input_gives_the_same_bytes(store: GraphStore, tmp_path: Path) -> None:
    other = create_store(tmp_path / "other", four_nodes(), Parameters())
    run_stage(store)
    run_stage(other)
    assert digests(store.path) == digests(other.path)
    assert store.digest == other.digest == open_store(store.path).digest


def test_no_features_and_no_splits(tmp_path: Path) -> None:
    graph = GraphArrays(
        name="bare",
        csr=PATH_GRAPH,
        features=np.zeros((4, 0), dtype=np.float32),
        labels=np.full(4, -1),
        splits=np.zeros((0, 4), dtype=np.int8),
        num_classes=0,
    )
    store = create_store(tmp_path / "bare", graph, Parameters())
    assert store.features().shape == (4, 0)
    assert store.ids() is None
    with pytest.raises(StoreError, match="Expected 'split' to be below 0"):
        store.split(0)


def test_rerun_is_a_no_op(store: GraphStore) -> None:
    assert run_stage(store)
    before = digests(store.path)
    assert not run_stage(open_store(store.path))
    assert create_store(store.path, four_nodes(), Parameters()).digest == store.digest
    assert digests(store.path) == before


def test_other_parameters_are_refused(store: GraphStore) -> None:
    with pytest.raises(StoreError, match="value=1 stored, 2 requested"):
        create_store(store.path, four_nodes(), Parameters(value=2))
    run_stage(store)
    with pytest.raises(StoreError, match="value=1 stored, 2 requested"):
        run_stage(store, 2)


def test_replacing_a_stage_drops_what_was_built_on_it(store: GraphStore) -> None:
    run_stage(store)
    with store.begin("later", Parameters(), requires=("double",)) as stage:
        stage.write_table("x.arrow", pa.table({"x": [1]}))
        stage.commit()
    assert run_stage(store, 2, replace=True)
    opened = open_store(store.path)
    assert not opened.has("later")
    assert not (store.path / "later/x.arrow").exists()
    assert opened.array("double/labels.arrow", "label").tolist() == [0, 4, -4, 4]


def test_missing_upstream_stage(store: GraphStore) -> None:
    with (
        pytest.raises(StoreError, match="Expected stage 'double' before 'later'"),
        store.begin("later", Parameters(), requires=("double",)),
    ):
        pass


def test_interrupted_stage_keeps_its_files(store: GraphStore) -> None:
    with store.begin("double", Parameters()) as stage:
        stage.write_scratch("part-0.arrow", pa.table({"x": [1, 2]}))
    assert not open_store(store.path).has("double")
    with store.begin("double", Parameters()) as stage:
        assert stage.scratch_names() == ["part-0.arrow"]
        assert stage.read("part-0.arrow").column("x").to_pylist() == [1, 2]
        stage.write_table("labels.arrow", pa.table({"label": [1]}))
        stage.commit()
    assert not (store.path / ".partial").exists()
    assert open_store(store.path).names("double") == ["double/labels.arrow"]


def test_scratch_of_other_parameters_is_not_used(store: GraphStore) -> None:
    with store.begin("double", Parameters(value=1)) as stage:
        stage.write_scratch("part-0.arrow", pa.table({"x": [1]}))
    with store.begin("double", Parameters(value=2)) as stage:
        assert stage.scratch_names() == []


def test_damaged_scratch_is_not_used(store: GraphStore) -> None:
    with store.begin("double", Parameters()) as stage:
        stage.write_scratch("part-0.arrow", pa.table({"x": [1]}))
        flip_byte(stage.workspace / "scratch/part-0.arrow", 40)
        assert not stage.existing("part-0.arrow")


def test_second_writer_is_refused(store: GraphStore) -> None:
    program = (
        "import sys; from pathlib import Path; from pydantic import create_model;"
        "from pipeline.store.access import open_store;"
        "open_store(Path(sys.argv[1])).begin('double', create_model('P')()).__enter__()"
    )
    with store.begin("double", Parameters()):
        result = subprocess.run(
            [sys.executable, "-c", program, str(store.path)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert result.returncode != 0
    assert "Expected no other writer" in result.stderr


def flip_byte(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_flipped_byte_in_any_file_is_found(store: GraphStore, tmp_path: Path) -> None:
    run_stage(store)
    names = [str(path.relative_to(store.path)) for path in store.path.rglob("*") if path.is_file()]
    assert "timings.json" in names
    assert "manifest.json" in names
    generator = np.random.default_rng(0)
    for name in names:
        size = (store.path / name).stat().st_size
        for offset in {0, size // 2, *generator.integers(0, size, 3).tolist()}:
            copy = tmp_path / "copy"
            shutil.copytree(store.path, copy)
            flip_byte(copy / name, offset)
            with pytest.raises(UserError):
                open_store(copy).verify()
            shutil.rmtree(copy)


def test_damage_is_found_before_use_without_verify(store: GraphStore) -> None:
    store.features()
    flip_byte(store.path / "nodes/features.arrow", 200)
    os.utime(store.path / "nodes/features.arrow", ns=(1, 1))
    with pytest.raises(CorruptFileError, match=r"nodes/features\.arrow"):
        store.features()


def test_unlisted_files_are_not_read(store: GraphStore) -> None:
    write_arrow(store.path / "nodes/extra.arrow", pa.table({"x": [1]}))
    with pytest.raises(StoreError, match=r"to list 'nodes/extra\.arrow'"):
        store.table("nodes/extra.arrow")


def test_other_schema_version(store: GraphStore) -> None:
    content = json.loads((store.path / "manifest.json").read_text())
    del content["digest"]
    write_sealed_json(store.path / "manifest.json", {**content, "schema_version": 99})
    with pytest.raises(StoreError, match=r"schema version 1 \(got 99\)"):
        open_store(store.path)


def test_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="to be a graph store"):
        create_store(tmp_path, four_nodes(), Parameters())


def test_truncated_arrow_file(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    write_arrow(path, pa.table({"x": np.arange(1000)}))
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(CorruptFileError, match=r"x\.arrow"):
        read_arrow(path)


def test_of_two_who_make_a_store_the_slower_uses_the_faster_ones(
    store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "contested"

    def lose(graph: GraphArrays) -> Manifest:
        shutil.copytree(store.path, place)
        return describe_graph(graph)

    monkeypatch.setattr("pipeline.store.access.describe_graph", lose)
    slower = create_store(place, four_nodes(), Parameters())
    assert digests(slower.path) == digests(store.path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["contested", "store"]


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 10

    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage)
    with pytest.raises(UserError, match="free under"):
        create_store(tmp_path / "store", four_nodes(), Parameters())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_explained() -> None:
    with pytest.raises(UserError, match="Expected room on the disk for 'x'"), explain_full_disk(Path("x")):
        Path("/dev/full").write_bytes(b"content")


def test_list_columns_and_slices(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int32).reshape(4, 3)
    write_arrow(tmp_path / "x.arrow", pa.table({"x": list_column(values)}))
    table = read_arrow(tmp_path / "x.arrow")
    assert np.array_equal(column_array(table, "x"), values)
    assert np.array_equal(column_array(table.slice(1, 2), "x"), values[1:3])


def test_empty_columns_and_gaps() -> None:
    assert column_array(pa.table({"x": pa.array([], type=pa.int32())}), "x").dtype == np.int32
    with pytest.raises(ValueError, match="without gaps"):
        column_array(pa.table({"x": [1, None]}), "x")


def test_reading_a_store_does_not_import_pandas(store: GraphStore) -> None:
    program = (
        "import sys; from pathlib import Path; from pipeline.store.access import open_store;"
        "s = open_store(Path(sys.argv[1])); s.csr(), s.features(), s.labels(), s.split();"
        "sys.exit('pandas' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(store.path)]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
