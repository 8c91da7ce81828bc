"""Starting a training: one directory per configuration, and one line about a worker's error."""

from pathlib import Path

import pytest

from pipeline.runtime.errors import UserError
from pipeline.segments.stage import write_segments
from pipeline.store.graph_store import GraphStore
from pipeline.training.job import TrainJob
from pipeline.training.launch import View, execute, training_directory
from pipeline.training.results import EpochRecord, Now, append_epoch, write_now
from tests.pipeline.conftest import tiny_config


def make_job(store: GraphStore, **settings: object) -> TrainJob:
    return TrainJob(tiny_config(store.path.parent, **settings), store.path, store.path.parent)


def test_what_decides_the_weights_decides_the_directory(tiny_store: GraphStore, tmp_path: Path) -> None:
    def place(**settings: object) -> Path:
        return training_directory(tiny_config(tmp_path, **settings), tiny_store)

    same = place(train__checkpoint_seconds=1, train__time_budget=9, resources__workers=2)
    assert same == place()
    others = [place(train__seed=1), place(data__split=1), place(model__tau=2.0), place(train__epochs=9)]
    assert len({same, *others}) == 5


def test_how_far_positions_look_decides_the_directory_where_they_are_computed_anew(
    tiny_store: GraphStore, tmp_path: Path
) -> None:
    links = {"data__task": "link", "model__name": "sparse", "model__positions": "implicit"}
    near, far = (tiny_config(tmp_path, positions__truncate=hops, **links) for hops in (4, 6))
    assert training_directory(near, tiny_store) != training_directory(far, tiny_store)


def test_stages_of_other_splits_leave_the_directory_alone(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    before = training_directory(config, tiny_store)
    write_segments(tiny_store, tiny_config(tmp_path, segments__length=6, data__split=1), replace=True)
    assert training_directory(config, tiny_store) == before


def test_more_workers_than_heads_are_refused(tiny_store: GraphStore) -> None:
    with pytest.raises(UserError, match=r"at most 2, the heads that 'sparse' shares out \(got 3\)"):
        execute(make_job(tiny_store, model__name="sparse", resources__workers=3))


class Lines:
    def __init__(self) -> None:
        self.done = 0
        self.shown: list[dict[str, object]] = []

    def advance(self, count: int = 1, **fields: object) -> None:
        self.done += count
        self.shown.append(fields)


def test_the_view_counts_epochs_and_shows_the_step_of_the_one_that_runs(tiny_store: GraphStore) -> None:
    job, bar = make_job(tiny_store, train__epochs=4), Lines()
    view = View(job, bar)
    view.refresh()
    assert bar.shown == []
    record = EpochRecord(
        epoch=0,
        step=10,
        train_loss=0.5,
        val_loss=None,
        val_metric=None,
        rows_per_second=100.0,
        learning_rate=0.1,
        seconds=1.0,
    )
    append_epoch(job.directory, record)
    now = Now(epoch=1, step=3, steps=10, loss=0.25, rows_per_second=50.0, steps_per_second=2.0)
    write_now(job.directory, now)
    view.refresh()
    view.refresh()
    assert bar.done == 1
    assert bar.shown == [
        {"loss": 0.5, "rows/s": 100.0},
        {"step": "3/10", "loss": 0.25, "rows/s": 50.0, "left": "14s"},
    ]
