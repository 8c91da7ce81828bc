"""Trainings copied to an object store: continued from there on an empty machine, and predicted with."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from pipeline.config.loading import Config, StorageConfig
from pipeline.config.locations import Uri
from pipeline.prediction.inference import predict
from pipeline.runtime.errors import UserError
from pipeline.storage.files import CorruptFileError
from pipeline.storage.object_store import Remote
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import find_checkpoint
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.remote_copy import open_checkpoint, pull, read_index, reconcile
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import tiny_config
from tests.storage import BUCKET, Storage, cut_when

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def small_steps(output: Path) -> Config:
    """A checkpoint, and so a copy, after each of twelve steps."""
    return tiny_config(output, train__checkpoint_seconds=0)


def remote_job(
    storage: Storage, store: GraphStore, tmp_path: Path, name: str, retry_seconds: float = 60
) -> TrainJob:
    """A training whose store and directory are in the bucket."""
    for path in [path for path in store.path.rglob("*") if path.is_file()]:
        storage.write(f"{name}/store/{path.relative_to(store.path)}", path.read_bytes())
    settings = StorageConfig(cache=tmp_path / "cache", retry_seconds=retry_seconds)
    place = Remote(Uri(storage.uri(name)), settings)
    directory = tmp_path / name
    directory.mkdir()
    return TrainJob(small_steps(tmp_path), place / "store", directory, mirror=place / "training")


def train_whole(store: GraphStore, tmp_path: Path) -> Path:
    """The same training undisturbed, on this machine alone."""
    directory = tmp_path / "whole"
    directory.mkdir()
    train_worker(TrainJob(small_steps(tmp_path), store.path, directory))
    return directory


def steps_copied(storage: Storage, name: str) -> int:
    numbers = [key for key in storage.names(f"{name}/training") if key.startswith("last-")]
    return max((int(key.split("/")[0].split("-")[1]) for key in numbers), default=0)


def require_equal(found: Path, whole: Path) -> None:
    mine, theirs = read_result(found), read_result(whole)
    assert mine is not None
    assert theirs is not None
    assert mine.weights_sha256 == theirs.weights_sha256
    losses = [[record.train_loss for record in read_epochs(place)] for place in (found, whole)]
    assert losses[0] == losses[1]


def test_a_training_goes_on_from_its_copy_on_an_empty_machine(
    storage: Storage, tiny_store: GraphStore, tmp_path: Path
) -> None:
    job = remote_job(storage, tiny_store, tmp_path, "moved", retry_seconds=1)
    watcher = cut_when(lambda: steps_copied(storage, "moved") >= 3, storage, seconds=None)
    with pytest.raises(UserError, match=r"to answer \(got .* for 1 s\): the same command continues"):
        train_worker(job)
    watcher.join(300)
    storage.line.restore()
    assert job.mirror is not None
    index = read_index(job.mirror)
    assert index is not None
    # The line was cut while a copy was made: the one before it is what counts.
    assert 2 <= index.step < 12
    shutil.rmtree(job.directory)
    shutil.rmtree(tmp_path / "cache")
    train_worker(job)
    require_equal(job.directory, train_whole(tiny_store, tmp_path))
    # Older checkpoints are gone: one to continue from and the best one are left.
    assert len({name.split("/")[0] for name in storage.names("moved/training")} - {"training.json"}) == 2


@pytest.mark.cluster
def test_a_connection_that_drops_in_training_is_waited_for(
    storage: Storage, tiny_store: GraphStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = remote_job(storage, tiny_store, tmp_path, "waited")
    watcher = cut_when(lambda: steps_copied(storage, "waited") >= 3, storage, seconds=8)
    train_worker(job)
    watcher.join(300)
    assert "does not answer" in caplog.text
    require_equal(job.directory, train_whole(tiny_store, tmp_path))


def test_predictions_with_a_copied_checkpoint_equal_local_ones(
    storage: Storage, tiny_store: GraphStore, tmp_path: Path
) -> None:
    job = remote_job(storage, tiny_store, tmp_path, "predicted")
    train_worker(job)
    assert job.mirror is not None
    predict(find_checkpoint(job.directory), tiny_store, tmp_path / "here.parquet")
    best = find_checkpoint(job.directory).name
    storage_place = Remote(Uri(storage.uri("predicted")), StorageConfig(cache=tmp_path / "elsewhere"))
    store = open_store(storage_place / "store")
    done = predict(storage_place / "training" / best, store, storage_place / "out.parquet")
    assert str(done.out) == storage.uri("predicted/out.parquet")
    (tmp_path / "there.parquet").write_bytes(storage.read("predicted/out.parquet"))
    tables = [pq.read_table(tmp_path / name) for name in ("here.parquet", "there.parquet")]
    assert tables[0].equals(tables[1])
    assert open_checkpoint(Uri(storage.uri("predicted/training")), storage_place.storage).name == best
    with pytest.raises(UserError, match=r"a checkpoint or a training with one at 's3://.*\(got none\)"):
        open_checkpoint(Uri(storage.uri("predicted/nothing")), storage_place.storage)


def test_the_side_that_got_further_wins_and_a_damaged_copy_is_refused(
    storage: Storage, tiny_store: GraphStore, tmp_path: Path
) -> None:
    whole = train_whole(tiny_store, tmp_path)
    place = Remote(Uri(storage.uri("sides")), StorageConfig(cache=tmp_path / "cache"))
    reconcile(whole, place)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    reconcile(fresh, place)
    require_equal(fresh, whole)
    weights = next(name for name in storage.names("sides") if name.startswith("last") and "/model" in name)
    storage.files().copy_file(f"{BUCKET}/sides/training.json", f"{BUCKET}/sides/{weights}")
    with pytest.raises(CorruptFileError, match=r"model.safetensors.* to have \d+ bytes \(got \d+\)"):
        pull(place, tmp_path / "another")
    assert not list((tmp_path / "another").glob("last-*"))
