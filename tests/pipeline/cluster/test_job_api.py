"""The job API from outside: where the token comes from, and how answers that are not Ray's are reported."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from pipeline.cluster.job_api import JobState, authorisation, connect, token
from pipeline.runtime.errors import UserError


class NotRay(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/version" else 404)
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def other_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), NotRay) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_token_is_looked_for_where_ray_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert token() is None
    assert authorisation() == {}
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("home\n")
    assert token() == "home"
    (tmp_path / "named").write_text("named\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "named"))
    assert token() == "named"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "given")
    assert authorisation() == {"Authorization": "Bearer given"}


def test_a_token_file_that_is_named_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nonexistent/token")
    with pytest.raises(UserError, match="RAY_AUTH_TOKEN_PATH"):
        token()


def test_another_server_is_not_taken_for_ray(other_server: str) -> None:
    with pytest.raises(UserError, match="got an answer of something else"):
        connect(other_server)


@pytest.mark.parametrize(
    ("status", "code", "shown"),
    [("SUCCEEDED", 0, 0), ("FAILED", 2, 2), ("FAILED", None, 1), ("STOPPED", -15, 143), ("STOPPED", 0, 1)],
)
def test_exit_codes(status: str, code: int | None, shown: int) -> None:
    state = JobState("job", "train", status, 1.0, "python", "", code, {})
    assert state.finished
    assert state.shell_code == shown
