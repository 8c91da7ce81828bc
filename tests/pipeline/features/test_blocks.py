"""Blocks: standardised, kept with their statistics, the same bytes after a kill."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.features import averages
from pipeline.features.averages import write_average
from pipeline.features.blocks import open_block, read_statistics
from pipeline.features.own import write_own
from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from tests.pipeline.features.conftest import directed_edges, make_store


def test_own_features_are_standardised_by_the_statistics_that_are_kept(store: GraphStore) -> None:
    assert write_own(store)
    assert not write_own(store)
    values = open_block(store, "own").astype(np.float64)
    np.testing.assert_allclose(values.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(values.std(0), 1, atol=1e-3)
    np.testing.assert_allclose(values, read_statistics(store, "own").apply(store.features()), atol=2e-3)


def test_a_block_that_was_not_written_is_named(store: GraphStore) -> None:
    with pytest.raises(UserError, match=r"stage 'block-mean-1' \(got none\): run `cocn preprocess`"):
        open_block(store, "mean-1")


@pytest.mark.parametrize("direction", ["mean", "out", "in"])
def test_averages_equal_the_dense_product(store: GraphStore, direction: averages.Direction) -> None:
    write_own(store)
    write_average(store, direction, 1, "own", "columns")
    write_average(store, direction, 2, "own", "columns")
    matrix = directed_edges()
    matrix = {"mean": matrix | matrix.T, "out": matrix, "in": matrix.T}[direction].astype(np.float64)
    operator = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    expected = open_block(store, "own").astype(np.float64)
    for hop in (1, 2):
        raw = operator @ expected
        expected = (raw - raw.mean(0)) / raw.std(0)
        np.testing.assert_allclose(open_block(store, f"{direction}-{hop}"), expected, atol=1e-2)


def test_a_killed_block_continues_and_has_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.features.blocks.BLOCK_ROWS", 8)
    whole, killed = make_store(tmp_path / "whole"), make_store(tmp_path / "killed")
    for store in (whole, killed):
        write_own(store)
    write_average(whole, "mean", 1, "own", "columns")
    plain, calls = averages.write_range, []

    def dies_in_the_middle(*arguments: object) -> None:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments)
        plain(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(averages, "write_range", dies_in_the_middle)
        with pytest.raises(KeyboardInterrupt):
            write_average(killed, "mean", 1, "own", "columns")
    write_average(killed, "mean", 1, "own", "columns")
    name = "block-mean-1/values.arrow"
    assert killed.manifest.files[name].sha256 == whole.manifest.files[name].sha256
