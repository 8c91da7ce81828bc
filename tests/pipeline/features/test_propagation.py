"""Propagated features equal the dense product, block by block, resumed or not, with and without Ray."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import BaseModel

import pipeline.features.propagation
from cocn.propagation import normalised_adjacency
from pipeline.features.propagation import open_propagated, propagate_features
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store
from pipeline.store.arrays import CSR, GraphArrays
from pipeline.store.graph_store import GraphStore
from pipeline.store.manifest import StoreError

NUM_NODES = 40


class Parameters(BaseModel):
    value: int = 1


def make_store(path: Path, directed: bool = False, num_features: int = 3) -> GraphStore:
    rng = np.random.default_rng(0)
    adjacency = rng.random((NUM_NODES, NUM_NODES)) < 0.1
    adjacency = adjacency if directed else adjacency | adjacency.T
    adjacency[7] = adjacency[:, 7] = False  # A node without edges.
    graph = GraphArrays(
        name="random",
        csr=CSR(
            np.concatenate([[0], np.cumsum(adjacency.sum(axis=1))]).astype(np.int64),
            np.nonzero(adjacency)[1].astype(np.int32),
        ),
        features=rng.standard_normal((NUM_NODES, num_features)).astype(np.float32),
        labels=np.zeros(NUM_NODES, dtype=np.int64),
        splits=np.zeros((0, NUM_NODES), dtype=np.int8),
        num_classes=1,
        directed=directed,
    )
    return create_store(path, graph, Parameters())


def dense_product(store: GraphStore, step: int, self_loops: bool) -> NDArray[np.float64]:
    csr = store.csr()
    dense = np.zeros((NUM_NODES, NUM_NODES))
    dense[np.repeat(np.arange(NUM_NODES), np.diff(csr.indptr)), csr.indices] = 1
    dense = np.maximum(dense, dense.T)
    np.fill_diagonal(dense, float(self_loops))
    degrees = dense.sum(axis=1)
    roots = np.where(degrees > 0, 1 / np.sqrt(np.maximum(degrees, 1)), 0)
    return np.linalg.matrix_power(roots[:, None] * dense * roots, step) @ store.features()


def digests(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.arrow"))
    }


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.features.propagation, "BLOCK_ROWS", 16)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("self_loops", [False, True])
def test_equals_the_dense_product(tmp_path: Path, directed: bool, self_loops: bool) -> None:
    store = make_store(tmp_path / "store", directed)
    assert propagate_features(store, 3, self_loops=self_loops)
    for step in range(4):
        expected = dense_product(store, step, self_loops)
        np.testing.assert_allclose(open_propagated(store, step), expected, rtol=1e-5, atol=1e-6)


def test_equals_the_operator_of_the_models(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    propagate_features(store, 2)
    csr = store.csr()
    sources = np.repeat(np.arange(NUM_NODES), np.diff(csr.indptr))
    operator = normalised_adjacency(torch.from_numpy(np.stack([sources, csr.indices])), NUM_NODES)
    expected = operator.propagate(torch.from_numpy(store.features().copy()), 2, backend="torch")
    np.testing.assert_allclose(open_propagated(store, 2), expected, rtol=1e-5, atol=1e-6)


def test_result_is_one_mapped_matrix(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    propagate_features(store, 1)
    result = open_propagated(store, 1)
    assert not result.flags.owndata
    assert result.flags.c_contiguous


def test_rerun_is_a_no_op_and_more_steps_extend(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    assert propagate_features(store, 1)
    before = digests(store.path)
    assert not propagate_features(store, 1)
    assert propagate_features(store, 2)
    assert digests(store.path).items() > before.items()
    with pytest.raises(StoreError, match="self_loops=True stored, False requested"):
        propagate_features(store, 1, self_loops=False)


def test_resumed_equals_undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "store")
    original, calls = pipeline.features.propagation.write_block, []

    def stop_at_the_third(stage: object, name: str, *arguments: object) -> None:
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        original(stage, name, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline.features.propagation, "write_block", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        propagate_features(store, 1)
    propagate_features(store, 1)
    assert len(calls) == len(set(calls)) + 1
    undisturbed = make_store(tmp_path / "undisturbed")
    propagate_features(undisturbed, 1)
    assert digests(store.path) == digests(undisturbed.path)


def test_ray_tasks_write_the_same_bytes(tmp_path: Path, local_ray: None) -> None:
    stores = [make_store(tmp_path / name) for name in ("inline", "ray")]
    for store, parallel in zip(stores, (False, True), strict=True):
        propagate_features(store, 1, parallel=parallel)
    inline, ray = (open_propagated(store, 1) for store in stores)
    np.testing.assert_array_equal(inline, ray)


def test_refuses_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="to have node features to propagate"):
        propagate_features(make_store(tmp_path / "bare", num_features=0), 1)
    with pytest.raises(UserError, match="to have stage 'propagated-2'"):
        open_propagated(make_store(tmp_path / "store"), 2)
