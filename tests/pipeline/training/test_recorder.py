"""What rank 0 writes, and that the other ranks write nothing."""

from pathlib import Path

import pytest
from torch import nn

import pipeline.training.recorder
from pipeline.models.metrics import Evaluation
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import TrainState, list_checkpoints
from pipeline.training.job import TrainJob
from pipeline.training.origin import Origin
from pipeline.training.recorder import Recorder
from pipeline.training.results import read_epochs, read_now
from pipeline.training.saving import CheckpointSaver
from tests.pipeline.conftest import tiny_config

STATE = TrainState(epoch=2, step=9, loss_sum=6.0, rows=12)


def make_job(store: GraphStore, directory: Path) -> TrainJob:
    return TrainJob(tiny_config(directory, train__checkpoint_seconds=0), store.path, directory)


def record_epoch(recorder: Recorder, validation: Evaluation | None) -> None:
    recorder.record_epoch(STATE, validation, "accuracy", rows_per_second=3.0, learning_rate=0.1, seconds=5.0)


def test_an_epoch_is_one_line_with_its_validation_if_it_had_one(
    tiny_store: GraphStore, tmp_path: Path
) -> None:
    recorder = Recorder(make_job(tiny_store, tmp_path), STATE, rank=0)
    record_epoch(recorder, None)
    assert [(record.train_loss, record.val_metric) for record in read_epochs(tmp_path)] == [(0.5, None)]
    record_epoch(recorder, Evaluation(num_rows=4, loss=0.4, metrics={"accuracy": 0.75}))
    assert [(record.val_loss, record.val_metric) for record in read_epochs(tmp_path)] == [(0.4, 0.75)]


def test_a_sign_of_life_counts_what_passed_since_the_last(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 50.0
    monkeypatch.setattr(pipeline.training.recorder.time, "monotonic", lambda: now)
    recorder = Recorder(make_job(tiny_store, tmp_path), STATE, rank=0)
    now = 50.5
    first = STATE.after_step(0.5, 4, None)
    recorder.record_step(first, 4)
    told = read_now(tmp_path)  # the first step at once, the next ones now and then
    assert told is not None
    assert (told.rows_per_second, told.steps_per_second) == (8.0, 2.0)
    now = 51.0
    second = first.after_step(0.5, 4, None)
    recorder.record_step(second, 4)
    assert read_now(tmp_path) == told
    now = 52.5
    recorder.record_step(second, 4)
    found = read_now(tmp_path)
    assert found is not None
    assert (found.rows_per_second, found.steps_per_second, found.step) == (2.0, 0.5, 3)


def test_other_ranks_write_nothing(tiny_store: GraphStore, tmp_path: Path) -> None:
    job = make_job(tiny_store, tmp_path / "training")
    recorder = Recorder(job, STATE, rank=1)
    record_epoch(recorder, None)
    saver = CheckpointSaver(job, Origin.of(job.config, tiny_store), rank=1)
    assert not saver.is_due()
    saver.save_best(STATE, nn.Linear(2, 2))
    assert not job.directory.exists()
    job.directory.mkdir()
    CheckpointSaver(job, Origin.of(job.config, tiny_store), rank=0).save_best(STATE, nn.Linear(2, 2))
    assert len(list_checkpoints(job.directory, "best")) == 1
