"""Object stores: small requests that are retried, and files read through a cache on this machine.

A file is trusted by its digest only: whatever lists files (a manifest, an index) is written last and holds
the digest of each, so that a half-written file is never read.
"""

import hashlib
import logging
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from pipeline.config.locations import Uri
from pipeline.config.settings import StorageConfig
from pipeline.runtime.errors import UserError
from pipeline.storage.file_cache import FileCache
from pipeline.storage.files import CorruptFileError, explain_full_disk

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 15.0
_CHUNK_BYTES = 8 * 2**20
#: Silence after which a request counts as lost, and how often S3's client retries by itself. The default is
#: thirty times: a hanging connection would cost 100 seconds before `storage.retry_seconds` applies.
_SILENCE_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_ATTEMPTS = 2
#: Where an object appears whole or not at all; elsewhere it gets its name by a rename.
_APPEARS_WHOLE = ("s3", "gcs", "abfs")
#: Errors that a second attempt cannot fix.
_FINAL = ("NO_SUCH_BUCKET", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "FORBIDDEN")


@dataclass(frozen=True)
class Remote:
    """A place in an object store; other processes that receive it read through their own node's cache.

    Attributes:
        root: the URI from the configuration.
        storage: cache and retry settings.
        key: the path below the root.
    """

    root: Uri
    storage: StorageConfig = field(default_factory=StorageConfig)
    key: str = ""

    @property
    def uri(self) -> Uri:
        return self.root / self.key if self.key else self.root

    @property
    def name(self) -> str:
        return self.uri.name

    @property
    def cache(self) -> FileCache:
        """The cache of this node."""
        return FileCache(self.storage.cache.expanduser().absolute(), round(self.storage.cache_gib * 2**30))

    def __str__(self) -> str:
        return str(self.uri)

    def __truediv__(self, name: str) -> "Remote":
        return Remote(self.root, self.storage, f"{self.key}/{name}" if self.key else name)

    def read(self) -> bytes | None:
        """The bytes of a small object; None if it does not exist."""

        def read(files: pafs.FileSystem, path: str) -> bytes | None:
            try:
                with files.open_input_stream(path) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

        return self._try(read)

    def size(self) -> int | None:
        """Bytes of an object; None if it does not exist."""

        def look(files: pafs.FileSystem, path: str) -> int | None:
            info = files.get_file_info(path)
            return int(info.size) if info.is_file else None

        return self._try(look)

    def names(self) -> list[str]:
        """Every object below this one, relative and sorted."""

        def look(files: pafs.FileSystem, path: str) -> list[str]:
            infos = files.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
            return sorted(info.path[len(path) :].lstrip("/") for info in infos if info.is_file)

        return self._try(look)

    def write(self, content: bytes) -> None:
        """Write a small object atomically."""

        def write(files: pafs.FileSystem, path: str) -> None:
            with _whole(files, path) as stream:
                stream.write(content)

        self._try(write)

    def upload(self, source: Path) -> None:
        """Write a file's bytes."""

        def write(files: pafs.FileSystem, path: str) -> None:
            with source.open("rb") as file, _whole(files, path) as stream:
                while chunk := file.read(_CHUNK_BYTES):
                    stream.write(chunk)

        self._try(write)

    def download(self, target: Path, sha256: str, size: int) -> None:
        """Copy the object to a file.

        Raises:
            CorruptFileError: If its bytes do not match the digest.
            UserError: If it is gone, or the disk is full.
        """

        def copy(files: pafs.FileSystem, path: str) -> tuple[str, int]:
            digest, count = hashlib.sha256(), 0
            with (
                explain_full_disk(target),
                files.open_input_stream(path) as stream,
                target.open("wb") as file,
            ):
                while chunk := stream.read(_CHUNK_BYTES):
                    file.write(chunk)
                    digest.update(chunk)
                    count += len(chunk)
            return digest.hexdigest(), count

        try:
            found, count = self._try(copy)
        except FileNotFoundError:
            raise CorruptFileError(f"Expected '{self}' to exist, as its listing says (got nothing)") from None
        if count != size:
            raise CorruptFileError(f"Expected '{self}' to have {size} bytes (got {count}): write it again")
        if found != sha256:
            raise CorruptFileError(
                f"Expected '{self}' to have SHA-256 {sha256[:12]}… (got {found[:12]}…): the file was "
                "changed; delete what it belongs to and build it again"
            )

    def fetch(self, sha256: str, size: int) -> Path:
        """The object in this node's cache."""
        return self.cache.fetch(sha256, size, lambda path: self.download(path, sha256, size))

    def delete(self) -> None:
        """Remove the object and everything below it, if any."""

        def remove(files: pafs.FileSystem, path: str) -> None:
            info = files.get_file_info(path)
            if info.is_file:
                files.delete_file(path)
            elif info.type != pafs.FileType.NotFound:
                files.delete_dir(path)

        self._try(remove)

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """pyarrow's file system and the path in it."""
        try:
            files, base = _open(str(self.root))
        except pa.ArrowInvalid as error:
            raise UserError(
                f"Expected '{self.root}' to be a URI that pyarrow reads (got: {error})"
            ) from error
        return files, f"{base.rstrip('/')}/{self.key}".rstrip("/")

    def _try(self, request: Callable[[pafs.FileSystem, str], Answer]) -> Answer:
        """Send a request; while nothing answers, retry at growing intervals.

        Raises:
            UserError: If the store refuses, or does not answer for longer than `storage.retry_seconds`.
        """
        deadline = time.monotonic() + self.storage.retry_seconds
        wait, warned = _FIRST_WAIT_SECONDS, False
        while True:
            try:
                return request(*self.filesystem())
            except FileNotFoundError:
                raise
            except OSError as error:
                reason = _reason(error)
                if isinstance(error, PermissionError) or any(word in str(error) for word in _FINAL):
                    raise UserError(f"Expected access to '{self}' (got {reason})") from error
                if time.monotonic() + wait > deadline:
                    raise UserError(
                        f"Expected '{self}' to answer (got {reason} for {self.storage.retry_seconds:g} s): "
                        "the same command continues from here once it does"
                    ) from error
                if not warned:
                    logger.warning("%s does not answer (%s); trying again", self.root, reason)
                    warned = True
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)


def resolve(place: Path | Uri | Remote, storage: StorageConfig | None = None) -> Path | Remote:
    """A place ready for use: paths as they are, URIs with their cache."""
    return Remote(place, storage or StorageConfig()) if isinstance(place, Uri) else place


@contextmanager
def local_file(out: Path | Remote) -> Iterator[Path]:
    """Where to write a file that is then moved or uploaded to `out`."""
    if isinstance(out, Path):
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        yield out
        return
    work = out.cache.directory / "work"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work) as directory:
        yield Path(directory) / out.name
        out.upload(Path(directory) / out.name)


@lru_cache(maxsize=32)
def _open(uri: str) -> tuple[pafs.FileSystem, str]:
    files, path = pafs.FileSystem.from_uri(uri)
    return _impatient(files) if files.type_name == "s3" else files, str(path)


def _impatient(files: pafs.S3FileSystem) -> pafs.S3FileSystem:
    """The same file system with timeouts, which a URI cannot express."""
    _, (settings,) = files.__reduce__()
    limits = {"request_timeout": _SILENCE_SECONDS, "connect_timeout": _CONNECT_SECONDS}
    return pafs.S3FileSystem(
        **{**settings, **limits}, retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
    )


@contextmanager
def _whole(files: pafs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """An output stream whose object gets its name only once it is complete."""
    if files.type_name in _APPEARS_WHOLE:
        with files.open_output_stream(path) as stream:
            yield stream
        return
    files.create_dir(path.rpartition("/")[0], recursive=True)
    temporary = f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    with files.open_output_stream(temporary) as stream:
        yield stream
    files.move(temporary, path)


def _reason(error: OSError) -> str:
    known = re.search(r"AWS Error ([A-Z_]+)", str(error))
    return known[1] if known else str(error).splitlines()[0][:200]
