"""Headless Chromium for tests: opens pages at a given width, with their errors and a screenshot."""

import json
import os
import shutil
import socket
import struct
import subprocess
import time
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ADVICE = "Chromium is not installed; on Debian and Ubuntu: apt-get install --no-install-recommends chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0


class Socket:
    """A minimal WebSocket client for a browser on this machine."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        key = b64encode(os.urandom(16)).decode()
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
        request += f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self._socket.sendall(request.encode())
        self._stream = self._socket.makefile("rb")
        assert b"101" in self._stream.readline()
        while self._stream.readline() != b"\r\n":
            pass

    def send(self, message: dict[str, Any]) -> None:
        data, mask = json.dumps(message).encode(), os.urandom(4)
        if len(data) < 126:
            head = struct.pack("!BB", 0x81, 0x80 | len(data))
        else:
            head = struct.pack("!BBQ", 0x81, 0x80 | 127, len(data))
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))
        self._socket.sendall(head + mask + masked)

    def receive(self) -> dict[str, Any]:
        """The next complete message."""
        data = b""
        while True:
            first, length = struct.unpack("!BB", self._stream.read(2))
            if length == 126:
                (length,) = struct.unpack("!H", self._stream.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self._stream.read(8))
            data += self._stream.read(length)
            if first & 0x80:
                found: dict[str, Any] = json.loads(data)
                return found

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


class Page:
    """One tab."""

    def __init__(self, connection: Socket) -> None:
        self._connection = connection
        self._number = 0
        self._events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the browser and wait for its result."""
        self._number += 1
        self._connection.send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._connection.receive()
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self._events.append(message)

    def open(self, address: str, width: int, height: int = 900, mobile: bool = False) -> None:
        """Open an address in a window of this size and wait until it has loaded."""
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def emulate(self, media: str = "", scheme: str = "light") -> None:
        """Render the page as on paper (`print`), or for a preferred colour scheme."""
        preference = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=media, features=[preference])

    def run(self, expression: str) -> Any:
        """The value of an expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.run(condition):
            assert time.monotonic() < deadline, f"'{condition}' never came true"
            time.sleep(0.1)

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and uncaught exceptions."""
        self.run("0")
        found = []
        for event in self._events:
            detail = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(detail["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if detail["type"] in ("error", "assert"):
                    found.append(json.dumps(detail["args"]))
                case "Log.entryAdded" if detail["entry"]["level"] == "error":
                    found.append(f"{detail['entry']['text']} {detail['entry'].get('url', '')}".strip())
        return found

    def picture(self, path: Path, whole: bool = True) -> Path:
        """Save a screenshot of the page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b64decode(answer["data"]))
        return path


@contextmanager
def open_browser(directory: Path) -> Iterator[Page]:
    """A browser with an empty profile in `directory`; skips the test if none is installed."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip(ADVICE)
    profile = directory / "profile"
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = _wait_for_port(profile / "DevToolsActivePort", process)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=ANSWER_SECONDS) as answer:
            pages = [page for page in json.load(answer) if page["type"] == "page"]
        path = pages[0]["webSocketDebuggerUrl"].split(str(port), 1)[1]
        connection = Socket(port, path)
        try:
            yield Page(connection)
        finally:
            connection.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def kept(directory: Path) -> Path:
    """Where screenshots go: COCN_TEST_ARTIFACTS, or the test's own directory."""
    return Path(os.environ.get("COCN_TEST_ARTIFACTS") or directory)


def _wait_for_port(file: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.1)
    raise AssertionError("Chromium did not start")
