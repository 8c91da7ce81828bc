"""Files that are either complete or absent: Arrow tables and sealed JSON, written atomically."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError

TEMPORARY_SUFFIX = ".tmp"
_LONGEST_SHOWN = 200
SPACE_MARGIN_BYTES = 16 * 2**20
_NUMBERS = {
    pa.from_numpy_dtype(kind): np.dtype(kind)
    for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
}

# A file verified in this process is not read again while size, time and inode stay the same.
_verified: dict[Path, tuple[str, int, int, int]] = {}


class CorruptFileError(UserError):
    """A file whose content is not what was written."""


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_sha256(value: object) -> str:
    """The SHA-256 of a JSON value in its canonical form: sorted keys, no spaces."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def write_arrow(path: Path, table: pa.Table) -> str:
    """Write `table` as an uncompressed Arrow IPC file and return its SHA-256.

    The bytes depend on the table alone, so equal tables give equal files.

    Raises:
        UserError: If the disk has no room for it.
    """
    options = pa.ipc.IpcWriteOptions(compression=None, unify_dictionaries=True)
    with (
        atomic_file(path, table.nbytes) as file,
        pa.ipc.new_file(file, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    return file_sha256(path)


def read_arrow(path: Path) -> pa.Table:
    """Map an Arrow IPC file into memory; columns written as one chunk are read without copying.

    Raises:
        CorruptFileError: If the file is not a complete Arrow IPC file.
        FileNotFoundError: If it does not exist.
    """
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowInvalid, pa.ArrowSerializationError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise CorruptFileError(
            f"Expected '{path}' to be a complete Arrow IPC file (got {_first_line(error)})"
        ) from error


def write_sealed_json(path: Path, content: Mapping[str, object]) -> str:
    """Write a JSON object together with the digest of its content, and return that digest."""
    text = seal_json(content)
    with atomic_file(path, len(text)) as file:
        file.write(text)
    return text_sha256(content)


def read_sealed_json(path: Path) -> dict[str, object]:
    """Read what `write_sealed_json` wrote, without the digest.

    Raises:
        CorruptFileError: If the text is not a JSON object, or does not match its digest.
    """
    return parse_sealed_json(path.read_bytes(), str(path))


def seal_json(content: Mapping[str, object]) -> bytes:
    """A JSON object together with the digest of its content."""
    sealed = {**content, "digest": text_sha256(content)}
    return (json.dumps(sealed, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def parse_sealed_json(text: bytes, place: str) -> dict[str, object]:
    """The content that `seal_json` sealed, without the digest; `place` is named in errors."""
    try:
        content = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CorruptFileError(f"Expected '{place}' to be JSON (got {_first_line(error)})") from error
    if not isinstance(content, dict) or content.pop("digest", None) != text_sha256(content):
        raise CorruptFileError(f"Expected '{place}' to match its own digest (got changed content)")
    return content


def check_inside(names: Iterable[str], place: str) -> None:
    """Refuse file names that lead outside the place whose listing contains them.

    Raises:
        CorruptFileError: Naming the first such file.
    """
    for name in names:
        parts = name.split("/")
        if "\0" in name or "\\" in name or any(part in ("", ".", "..") for part in parts):
            raise CorruptFileError(f"Expected '{place}' to list files inside it (got '{name}')")


@contextmanager
def atomic_file(path: Path, expected_bytes: int = 0) -> Iterator[BinaryIO]:
    """Open a temporary file next to `path`; it replaces `path` once it is safely on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    require_space(path.parent, expected_bytes)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        with explain_full_disk(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Write a small file atomically: readers see either the old text or the new one.

    It is not forced to disk, so that it may be written often; anything that must survive a power cut is
    written with `atomic_file`.
    """
    building = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY_SUFFIX}")
    building.write_text(text, encoding="utf-8")
    building.replace(path)


@contextmanager
def explain_full_disk(path: Path) -> Iterator[None]:
    """Turn the operating system's "no space left" into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise UserError(f"Expected room on the disk for '{path}' (got none): free some, run again") from error


def require_directory(path: Path, what: str) -> None:
    """Refuse a path that is not, or cannot become, a directory, before anything is written; leaves no trace.

    Args:
        path: The directory, existing or not.
        what: The flag or key that names it.

    Raises:
        UserError: Saying what is in the way.
    """
    place = path.expanduser().absolute()
    try:
        existing = next(parent for parent in (place, *place.parents) if parent.exists())
        if not existing.is_dir():
            raise UserError(f"Expected '{what}' to be a directory (got '{existing}', which is not)")
        with tempfile.TemporaryDirectory(prefix=".cocn-", dir=existing):
            pass
    except OSError as error:
        shown = str(path) if len(str(path)) <= _LONGEST_SHOWN else f"{str(path)[:_LONGEST_SHOWN]}…"
        raise UserError(
            f"Expected '{what}' to be a directory that can be written to (got '{shown}': {error.strerror})"
        ) from error


def require_file_place(path: Path, what: str) -> None:
    """Refuse a file that cannot be written, before the work that produces its content.

    Raises:
        UserError: Saying what is in the way.
    """
    require_directory(path.expanduser().absolute().parent, what)
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"Expected '{what}' to be a file (got '{path}', which is not)")
    except OSError as error:
        raise UserError(f"Expected '{what}' to be a writable file (got: {error.strerror})") from error


def require_space(directory: Path, expected_bytes: int) -> None:
    """Refuse to start a write that does not fit on the disk."""
    free = shutil.disk_usage(directory).free
    if free < expected_bytes + SPACE_MARGIN_BYTES:
        raise UserError(
            f"Expected {_mebibytes(expected_bytes + SPACE_MARGIN_BYTES)} free under '{directory}' "
            f"(got {_mebibytes(free)}): free some or choose another place"
        )


def sync_directory(directory: Path) -> None:
    """Make renames inside `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_column(values: NDArray[np.generic]) -> pa.Array:
    """The rows of a contiguous matrix as one fixed-size-list array, without copying."""
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"Expected 'values' to be a matrix with columns (got shape {values.shape})")
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])


def column_array(table: pa.Table, name: str) -> NDArray[np.generic]:
    """A column of `table` as a read-only array: a vector, or a matrix for a fixed-size list; no copy."""
    chunks = table.column(name)
    column = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    if not pa.types.is_fixed_size_list(column.type):
        return _vector(column)
    return _vector(column.flatten()).reshape(len(column), column.type.list_size)


def _vector(values: pa.Array) -> NDArray[np.generic]:
    # Arrow's own to_numpy imports pandas, which takes longer than most stages of a small graph.
    kind = _NUMBERS.get(values.type)
    if values.null_count or kind is None:
        raise ValueError(f"Expected a column of numbers without gaps (got {values.type})")
    if len(values) == 0:
        return np.zeros(0, dtype=kind)
    return np.frombuffer(
        values.buffers()[1], dtype=kind, count=len(values), offset=values.offset * kind.itemsize
    )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def verify_file(path: Path, sha256: str, size: int) -> None:
    """Check a file against its recorded digest, once per process while the file is unchanged.

    Raises:
        CorruptFileError: If it is missing, or its bytes differ from the recorded ones.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise CorruptFileError(f"Expected '{path}' to exist, as the manifest says (got nothing)") from None
    if status.st_size != size:
        raise CorruptFileError(f"Expected '{path}' to have {size} bytes (got {status.st_size})")
    state = (sha256, status.st_size, status.st_mtime_ns, status.st_ino)
    if _verified.get(path) == state:
        return
    digest = file_sha256(path)
    if digest != sha256:
        raise CorruptFileError(
            f"Expected '{path}' to have SHA-256 {sha256[:12]}… (got {digest[:12]}…): "
            "the file was changed; delete the store and build it again"
        )
    _verified[path] = state
