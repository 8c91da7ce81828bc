"""Stores, checkpoints and predictions in a real object store on loopback, with faults on the way."""

import hashlib
from pathlib import Path

import pytest

from pipeline.config.loading import Config, ConfigError, StorageConfig, load_config
from pipeline.config.locations import Uri, parse_place
from pipeline.ingest.stage import options_from
from pipeline.runtime.errors import UserError
from pipeline.storage.file_cache import FileCache
from pipeline.storage.files import CorruptFileError, file_sha256
from pipeline.storage.object_store import Remote
from pipeline.store.access import open_store
from pipeline.store.manifest import StoreError
from pipeline.training.prepare import prepare
from tests.storage import BUCKET, SECRET_KEY, Storage, cut_when

pytestmark = pytest.mark.cluster

TIMINGS = "timings.json"


def configure(place: object, tmp_path: Path, **overrides: object) -> Config:
    """A configuration for a small graph, with a store at `place` and a separate cache."""
    values: dict[str, object] = {
        "data.side": 12,
        "data.store": str(place),
        "segments.length": 5,
        "segments.shard_rows": 17,
        "model.heads": 2,
        "storage.cache": tmp_path / "cache",
        "storage.retry_seconds": 60,
        "output": tmp_path / "runs",
    }
    return load_config(None, values | {key.replace("__", "."): value for key, value in overrides.items()})


def contents(directory: Path) -> dict[str, str]:
    """Digests of a store's files on disk."""
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != TIMINGS]
    return {str(path.relative_to(directory)): file_sha256(path) for path in files}


def uploaded(storage: Storage, key: str) -> dict[str, str]:
    """Digests of a store's objects."""
    names = storage.names(key) - {TIMINGS}
    return {name: hashlib.sha256(storage.read(f"{key}/{name}")).hexdigest() for name in names}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, local_ray: None) -> Path:
    """The store that every remote one must equal."""
    directory = tmp_path_factory.mktemp("local")
    config = configure(directory / "store", directory)
    prepare(config, options_from(config.data))
    return directory / "store"


@pytest.mark.usefixtures("local_ray")
def test_a_store_at_a_uri_has_the_bytes_of_a_local_one_and_is_read_through_the_cache(
    storage: Storage, local: Path, tmp_path: Path
) -> None:
    config = configure(storage.uri("stores/board"), tmp_path)
    done = prepare(config, options_from(config.data))
    assert str(done.store) == storage.uri("stores/board")
    assert uploaded(storage, "stores/board") == contents(local)

    elsewhere = StorageConfig(cache=tmp_path / "another node")
    opened = open_store(Remote(Uri(storage.uri("stores/board")), elsewhere))
    assert opened.digest == open_store(local).digest
    assert (opened.features() == open_store(local).features()).all()
    assert not opened.features().flags.writeable
    name = "nodes/features.arrow"
    assert opened.locate(name) == elsewhere.cache / "files" / opened.manifest.files[name].sha256
    before = storage.line.bytes
    assert opened.features().shape == (144, 7)
    assert storage.line.bytes == before
    again = prepare(config, options_from(config.data))
    assert all(stage.done_before for stage in again.stages)


@pytest.mark.usefixtures("local_ray")
def test_a_copied_store_is_a_store_and_other_parameters_are_refused(
    storage: Storage, local: Path, tmp_path: Path
) -> None:
    for path in [path for path in local.rglob("*") if path.is_file()]:
        storage.write(f"copied/{path.relative_to(local)}", path.read_bytes())
    config = configure(storage.uri("copied"), tmp_path)
    assert all(stage.done_before for stage in prepare(config, options_from(config.data)).stages)
    other = configure(storage.uri("copied"), tmp_path, positions__truncate=2)
    with pytest.raises(StoreError, match="truncate=4 stored, 2 requested"):
        prepare(other, options_from(other.data))
    replaced = prepare(other, options_from(other.data), replace=True)
    assert [stage.done_before for stage in replaced.stages] == [True, False, False, False]
    open_store(replaced.store).verify()


def test_a_file_uri_is_a_path(tmp_path: Path) -> None:
    assert parse_place(f"file://{tmp_path}/a%20b") == tmp_path / "a b"
    assert load_config(None, {"data.store": "stores/mine"}).data.store == Path("stores/mine")


@pytest.mark.parametrize(
    ("uri", "line"),
    [
        ("ftp://host/store", "to be a path, or a URI that begins with s3://, gs:// or file:// (got 'ftp://"),
        (f"s3://me:{SECRET_KEY}@bucket/store", "to be a URI without a password"),
    ],
)
def test_a_bad_uri_is_one_line_without_its_password(uri: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {"data.store": uri})
    assert line in str(caught.value)
    assert SECRET_KEY not in str(caught.value)


def test_a_missing_store_and_a_missing_bucket_are_one_line(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"to be a graph store \(got no 'manifest.json' in it\)"):
        open_store(Uri(storage.uri("nothing")))
    place = Uri(storage.uri("store").replace(BUCKET, "nowhere"))
    with pytest.raises(UserError, match=r"Expected access to 's3://nowhere/.*\(got NO_SUCH_BUCKET\)"):
        Remote(place).write(b"text")


def remote_copy(storage: Storage, local: Path, key: str, tmp_path: Path, **settings: float) -> Remote:
    for path in [path for path in local.rglob("*") if path.is_file()]:
        storage.write(f"{key}/{path.relative_to(local)}", path.read_bytes())
    return Remote(Uri(storage.uri(key)), StorageConfig(cache=tmp_path / "cache", **settings))  # type: ignore[arg-type]


def test_a_damaged_file_in_the_cache_is_fetched_again(storage: Storage, local: Path, tmp_path: Path) -> None:
    store = open_store(remote_copy(storage, local, "cached", tmp_path))
    expected = store.labels().copy()
    path = store.locate("nodes/labels.arrow")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.unlink()
    path.write_bytes(bytes(damaged))
    assert (store.labels() == expected).all()
    assert file_sha256(store.locate("nodes/labels.arrow")) == path.name


@pytest.mark.parametrize(
    ("change", "line"), [("flip", "to have SHA-256"), ("cut", "bytes (got"), ("drop", "to exist")]
)
def test_a_damaged_file_in_the_bucket_is_refused(
    storage: Storage, local: Path, tmp_path: Path, change: str, line: str
) -> None:
    store = open_store(remote_copy(storage, local, f"damaged-{change}", tmp_path))
    key = f"damaged-{change}/nodes/labels.arrow"
    content = bytearray(storage.read(key))
    content[-100] ^= 1
    if change == "drop":
        storage.files().delete_file(f"{BUCKET}/{key}")
    else:
        storage.write(key, bytes(content if change == "flip" else content[:-7]))
    with pytest.raises(CorruptFileError) as caught:
        store.labels()
    assert storage.uri(key) in str(caught.value)
    assert line in str(caught.value)
    assert not [path for path in (tmp_path / "cache/files").iterdir() if path.is_file()]


def test_the_cache_keeps_to_its_size_and_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, max_bytes=250)
    digests = []
    for number in range(3):
        source = tmp_path / "source"
        source.write_bytes(bytes([number]) * 100)
        digests.append(file_sha256(source))
        if number == 2:
            cache.fetch(digests[0], 100, lambda path: pytest.fail(f"{path} was there"))
        cache.adopt(source, digests[-1])
    assert {path.name for path in cache.files.iterdir()} == {digests[0], digests[2]}
    fetched = cache.fetch(digests[1], 100, lambda path: path.write_bytes(bytes([1]) * 100) and None)
    assert file_sha256(fetched) == digests[1]
    assert sum(path.stat().st_size for path in cache.files.iterdir()) <= 250


@pytest.mark.cluster
@pytest.mark.usefixtures("local_ray")
def test_a_connection_that_drops_in_mid_stage_is_waited_for(
    storage: Storage, local: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = configure(storage.uri("dropped"), tmp_path)
    watcher = cut_when(lambda: "nodes/labels.arrow" in storage.names("dropped"), storage, seconds=8)
    prepare(config, options_from(config.data))
    watcher.join(300)
    assert "does not answer (NETWORK_CONNECTION); trying again" in caplog.text
    assert uploaded(storage, "dropped") == contents(local)


@pytest.mark.usefixtures("local_ray")
def test_a_storage_that_stays_away_is_one_line_and_the_rerun_uploads_the_rest(
    storage: Storage, local: Path, tmp_path: Path
) -> None:
    config = configure(storage.uri("away"), tmp_path, storage__retry_seconds=1)

    def notes() -> set[str]:
        return {name for name in storage.names("away") if name.startswith(".partial/segments")}

    watcher = cut_when(lambda: len(notes()) >= 2, storage, seconds=None)
    with pytest.raises(UserError, match=r"to answer \(got NETWORK_CONNECTION for 1 s\): the same command"):
        prepare(config, options_from(config.data))
    watcher.join(300)
    assert len(notes()) >= 2
    storage.line.restore()
    assert not open_store(Remote(Uri(storage.uri("away")), config.storage)).has("segments-0")
    prepare(config, options_from(config.data))
    assert uploaded(storage, "away") == contents(local)
