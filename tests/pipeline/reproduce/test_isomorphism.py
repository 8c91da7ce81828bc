"""The isomorphism test: the reader by hand, the counts, and a control that catches ties broken by number."""

from pathlib import Path

import numpy as np
import pytest
import torch

import cocn
import pipeline.reproduce.isomorphism
from pipeline.reproduce.isomorphism import (
    Collection,
    close_pairs,
    make_network,
    read_collections,
    read_graph6,
    run_test,
)
from pipeline.runtime.errors import UserError

DATA_ROOT = Path(__file__).parents[4] / "shared" / "datasets"

needs_data = pytest.mark.skipif(
    not (DATA_ROOT / "isomorphism").is_dir(), reason=f"the datasets are not in {DATA_ROOT}"
)


def both(*pairs: tuple[int, int]) -> "np.ndarray[tuple[int, int], np.dtype[np.int64]]":
    one = np.array(pairs, dtype=np.int64).T
    return np.concatenate([one, one[::-1]], axis=1)


SIX_RING = both((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0))
TWO_TRIANGLES = both((0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3))


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_graph6_by_hand(tmp_path: Path) -> None:
    # The path 0-1-2-3: pairs (0,1), (0,2), (1,2), (0,3), (1,3), (2,3) are 1, 0, 1, 0, 0, 1 = 41 + 63 = 'h'.
    (tmp_path / "one.g6").write_bytes(b"Ch\n")
    graphs, size = read_graph6(tmp_path / "one.g6")
    assert size == 4
    assert {(int(a), int(b)) for a, b in graphs[0].T if a < b} == {(0, 1), (1, 2), (2, 3)}


def test_graphs_that_colour_refinement_cannot_tell_apart() -> None:
    outcome = run_test(Collection("ring", [SIX_RING, TWO_TRIANGLES], [6, 6]))
    assert (outcome.undistinguished, outcome.wrongly_distinguished) == (0, 0)
    assert outcome.num_pairs == 1


def test_two_copies_of_one_graph_are_not_distinguished() -> None:
    outcome = run_test(
        Collection("copies", [SIX_RING, np.random.default_rng(0).permutation(6)[SIX_RING]], [6, 6])
    )
    assert outcome.undistinguished == 1
    assert outcome.wrongly_distinguished == 0


def test_the_control_catches_ties_broken_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_number(collection: Collection, seed: int) -> cocn.CoCN:
        model = make_network(collection, seed)
        model.ties = "input"
        return model

    monkeypatch.setattr(pipeline.reproduce.isomorphism, "make_network", by_number)
    outcome = run_test(Collection("ring", [SIX_RING, TWO_TRIANGLES], [6, 6]))
    assert outcome.wrongly_distinguished > 0


def test_close_pairs_are_those_within_the_tolerance() -> None:
    embeddings = np.array([[0.0, 0.0], [4e-4, 4e-4], [1.0, 0.0], [1.0, 2e-3]])
    assert close_pairs(embeddings, None) == {(0, 1)}
    assert close_pairs(embeddings, np.array([[0, 1], [2, 3]])) == {(0, 1)}


@needs_data
def test_strongly_regular_graphs_and_a_part_of_the_others() -> None:
    for collection in read_collections(DATA_ROOT):
        some = slice(0, 60)
        part = Collection(
            collection.name,
            collection.graphs[some],
            collection.sizes[some],
            None if collection.features is None else collection.features[some],
            None if collection.pairs is None else collection.pairs[:30],
        )
        outcome = run_test(part)
        assert (outcome.undistinguished, outcome.wrongly_distinguished) == (0, 0)
        assert outcome.num_parameters <= 30_000


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sr251256\.g6.*--data-root"):
        read_collections(tmp_path, ["sr25"])
