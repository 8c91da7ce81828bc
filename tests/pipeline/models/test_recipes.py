"""Recipes: what `auto` becomes, and that what a user chose is kept."""

from pathlib import Path

from pipeline.config.loading import load_config
from pipeline.ingest.generators import minesweeper
from pipeline.models.recipes import with_model
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from tests.pipeline.features.conftest import Parameters


def board(path: Path) -> GraphStore:
    return create_store(path / "board", minesweeper(6, num_splits=1), Parameters())


def test_auto_is_modern_for_nodes_and_paper_for_links(tmp_path: Path) -> None:
    store = board(tmp_path)
    assert with_model(load_config(), "sparse", store).model.recipe == "modern"
    links = load_config(None, {"data.task": "link"})
    assert with_model(links, "sparse", store).model.recipe == "paper"
    assert with_model(load_config(), "gcn", store).model.recipe == "auto"


def test_the_paper_keeps_the_defaults_of_the_settings(tmp_path: Path) -> None:
    paper = load_config(None, {"model.recipe": "paper"})
    assert with_model(paper, "segment", board(tmp_path)).train == paper.train


def test_settings_that_were_given_are_kept(tmp_path: Path) -> None:
    given = load_config(None, {"model.dropout": 0.125, "train.epochs": 7})
    for name in ("sparse", "segment"):
        found = with_model(given, name, board(tmp_path))
        assert (found.model.dropout, found.train.epochs) == (0.125, 7)
        assert found.train.schedule == "cosine"


def test_models_that_follow_one_another_get_their_own_settings(tmp_path: Path) -> None:
    store = board(tmp_path)
    first = with_model(load_config(), "segment", store)
    assert first.model.hidden_channels == 256
    assert with_model(load_config(), "sparse", store).model.hidden_channels == 64
