"""What a model needs of a store, resolved in one place."""

from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from pipeline.store.graph_store import GraphStore
from pipeline.training.needs import Needs, resolve_needs
from tests.pipeline.conftest import tiny_config


def needs_of(store: GraphStore, tmp_path: Path, **settings: object) -> Needs:
    return resolve_needs(tiny_config(tmp_path, **settings), store)


@pytest.mark.parametrize(
    ("settings", "reading", "stages", "precomputed"),
    [
        ({}, "segments", ("ingest", "propagated-1", "segments-0"), True),
        ({"model__positions": "explicit"}, "segments", ("ingest", "propagated-1", "propagated-2"), False),
        ({"model__positions": "implicit"}, "segments", ("ingest", "positions", "propagated-1"), True),
        ({"model__name": "sparse"}, "graph", ("ingest",), False),
        ({"model__name": "sparse", "model__positions": "fixed"}, "graph", ("ingest", "positions"), True),
        ({"model__name": "gcn"}, "graph", ("ingest",), False),
        (
            {"model__name": "sparse", "model__positions": "implicit", "data__task": "link"},
            "links",
            ("ingest", "links-0"),
            False,
        ),
    ],
)
def test_reading_and_stages_follow_from_model_task_and_store(
    tiny_store: GraphStore,
    tmp_path: Path,
    settings: dict[str, object],
    reading: str,
    stages: tuple[str, ...],
    precomputed: bool,
) -> None:
    found = needs_of(tiny_store, tmp_path, **settings)
    assert (found.reading, found.stages, found.precomputed_positions) == (reading, stages, precomputed)
    assert found.reads_shards == ("segments-0" in stages)
    assert found.reads_whole_graph == (reading != "segments")


def test_what_a_store_cannot_answer_is_refused(tiny_store: GraphStore, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected 'data.task' to be node or link"):
        needs_of(tiny_store, tmp_path, data__task="graph")
    with pytest.raises(UserError, match="got segment"):
        needs_of(tiny_store, tmp_path, data__task="link")
