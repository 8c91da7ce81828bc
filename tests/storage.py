"""An S3 endpoint on loopback, and a connection to it that can be cut and restored."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs

ACCESS_KEY = "cocn-test-user"
SECRET_KEY = "cocn-test-secret-5f0e1c"  # noqa: S105 - of an endpoint that lives as long as the tests
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_EC2_METADATA_DISABLED": "true",
}
BUCKET = "bucket"
PATIENCE_SECONDS = 120


class Line:
    """A TCP relay to a port of this machine."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.bytes = 0
        self.restore()

    def restore(self) -> None:
        """Take connections, at the same port as before."""
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port, self._listener = listener.getsockname()[1], listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and break those that are open."""
        if self._listener is not None:
            # Wakes the thread that waits on it.
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._upstream))
            self._open |= {near, far}
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._relay, args=pair, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
                self.bytes += len(data)
        for one in (source, target):
            self._open.discard(one)
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@dataclass(frozen=True)
class Storage:
    """A bucket behind a line."""

    line: Line
    port: int

    def uri(self, key: str) -> str:
        """The URI of a place in the bucket, through the line."""
        return f"s3://{BUCKET}/{key}?endpoint_override=127.0.0.1:{self.line.port}&scheme=http"

    def files(self) -> pafs.S3FileSystem:
        """The bucket itself, past the line."""
        return pafs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )

    def names(self, key: str) -> set[str]:
        """Every object below a place."""
        found = self.files().get_file_info(
            pafs.FileSelector(f"{BUCKET}/{key}", recursive=True, allow_not_found=True)
        )
        return {info.path.removeprefix(f"{BUCKET}/{key}/") for info in found if info.is_file}

    def read(self, key: str) -> bytes:
        with self.files().open_input_stream(f"{BUCKET}/{key}") as stream:
            return bytes(stream.read())

    def write(self, key: str, content: bytes) -> None:
        with self.files().open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(content)


def cut_when(condition: Callable[[], bool], storage: Storage, seconds: float | None) -> threading.Thread:
    """Cut the line once something holds, for so long or for good."""

    def watch() -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.002)
        storage.line.cut()
        if seconds is not None:
            time.sleep(seconds)
            storage.line.restore()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


@contextmanager
def serve_storage() -> Iterator[Storage]:
    """Start the endpoint and end it; programs find its credentials in `ENVIRONMENT`."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server: Any = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    storage = Storage(Line(port), port)
    storage.files().create_dir(BUCKET)
    try:
        yield storage
    finally:
        storage.line.cut()
        server.stop()
