"""An S3 endpoint on loopback, and a connection to it that can be cut and restored."""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

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
CONNECT_SECONDS = 10


Disturbance = Literal["drop", "hang", "garbage"]
GARBAGE = bytes(range(256)) * 256


class Line:
    """A TCP relay to a port of this machine.

    The port stays its own while the line is cut, so that nobody else takes it in the meantime, and the two
    sockets of a connection are closed together, so that no thread reads from a number that is another's then.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._state: Disturbance | Literal["whole"] = "whole"
        self.port = int(self._listener.getsockname()[1])
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def restore(self) -> None:
        """Take connections, at the same port as before; those that hung are broken."""
        hung, self._state = self._state == "hang", "whole"
        if hung:
            self._break()

    def cut(self) -> None:
        """Break the connections that are open, and new ones as they come."""
        self.disturb("drop")

    def disturb(self, how: "Disturbance") -> None:
        """Break connections, let them hang, or answer them with bytes that mean nothing."""
        self._state = how
        if how == "drop":
            self._break()

    def _break(self) -> None:
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the relay."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits on it
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(("127.0.0.1", self._upstream), CONNECT_SECONDS)
            except OSError:
                return
            with far:
                far.settimeout(None)
                ends = {near, far}
                self._open |= ends
                if self._state != "drop":
                    back = threading.Thread(target=self._relay, args=(far, near), daemon=True)
                    back.start()
                    self._relay(near, far)
                    back.join(PATIENCE_SECONDS)
                self._open -= ends

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                while self._state == "hang":
                    time.sleep(0.02)
                if self._state == "garbage" and source.getpeername()[1] == self._upstream:
                    data = GARBAGE[: len(data)]
                target.sendall(data)
                self.bytes += len(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


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
        storage.line.close()
        server.stop()
