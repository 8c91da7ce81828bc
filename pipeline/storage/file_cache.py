"""Remote files kept on this machine: named by digest, bounded in size, least recently used first out."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.storage.files import TEMPORARY_SUFFIX, CorruptFileError, require_space, verify_file

#: A temporary file this old belongs to a process that was killed.
_STALE_SECONDS = 3600.0


class FileCache:
    """A directory of files named by their SHA-256.

    Several processes may share it. A file that a process has mapped stays readable after it is removed here.

    Args:
        directory: Where the files are kept.
        max_bytes: Size limit for all files together; the newest one is kept whatever its size.
    """

    def __init__(self, directory: Path, max_bytes: int) -> None:
        self.directory = directory
        self.files = directory / "files"
        self.max_bytes = max_bytes

    def fetch(self, sha256: str, size: int, download: Callable[[Path], None]) -> Path:
        """The file with that digest; `download` writes it if it is missing or damaged.

        Raises:
            UserError: If the disk has no room for it.
        """
        path = self.files / sha256
        try:
            self._verify(sha256, size)
        except CorruptFileError:
            path.unlink(missing_ok=True)
            self.files.mkdir(parents=True, exist_ok=True)
            require_space(self.files, size)
            temporary = self._temporary(sha256)
            try:
                download(temporary)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            self._trim(path)
        self._touch(path)
        return path

    def adopt(self, source: Path, sha256: str) -> Path:
        """Move a finished file in."""
        path = self.files / sha256
        self.files.mkdir(parents=True, exist_ok=True)
        source.replace(path)
        self._touch(path)
        self._trim(path)
        return path

    def _verify(self, sha256: str, size: int) -> None:
        verify_file(self.files / sha256, sha256, size)

    def _temporary(self, sha256: str) -> Path:
        return self.files / f".{sha256}.{os.getpid()}.{threading.get_ident()}{TEMPORARY_SUFFIX}"

    def _touch(self, path: Path) -> None:
        # Only the time of reading: a verified file is recognised by its time of writing.
        with suppress(FileNotFoundError):  # removed by another process; the next reader downloads it again
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def _trim(self, newest: Path) -> None:
        found = []
        for path in self.files.iterdir():
            try:
                found.append((path, path.stat()))
            except FileNotFoundError:  # another process was faster
                continue
        total = 0
        for path, status in sorted(found, key=lambda item: -item[1].st_atime_ns):
            is_temporary = path.suffix == TEMPORARY_SUFFIX
            is_stale = is_temporary and time.time() - status.st_mtime > _STALE_SECONDS
            total += status.st_size
            if is_stale or (total > self.max_bytes and path != newest and not is_temporary):
                path.unlink(missing_ok=True)
                total -= status.st_size
