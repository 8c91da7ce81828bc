"""A Ray cluster from outside: its job API, with retries and token, and what its jobs are doing."""

import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pipeline.runtime.errors import UserError

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

Answer = TypeVar("Answer")

_DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_REQUEST_TIMEOUT_SECONDS = 10.0
_STRANGER_TIMEOUT_SECONDS = 3.0
_RECONNECTS = 5
_CHATTY = (
    "ray.dashboard.modules.dashboard_sdk",
    "ray.dashboard.modules.job.sdk",
    "ray._private.runtime_env.packaging",
)
_START_TIMEOUT_SECONDS = 60.0
# Jobs that only look for a file; Ray may list one for a while after it was deleted.
PROBE_PREFIX = "probe-"
_NOT_READY = "No available agent"
_POLL_SECONDS = 0.3
_FINAL = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class JobState:
    """A job as the cluster reports it."""

    id: str
    stage: str
    status: str
    seconds: float
    entrypoint: str
    message: str
    exit_code: int | None
    metadata: dict[str, str]

    @property
    def finished(self) -> bool:
        return self.status in _FINAL

    @property
    def shell_code(self) -> int:
        """The job's exit code as a shell would show it; 1 if it failed without one."""
        if self.status == "SUCCEEDED":
            return 0
        code = self.exit_code or 1
        return code if code > 0 else 128 - code


@dataclass(frozen=True)
class JobList:
    """The jobs of a cluster, newest first."""

    jobs: tuple[JobState, ...]


@dataclass(frozen=True)
class Cluster:
    """A cluster that answers and accepts our token.

    Attributes:
        address: its dashboard, such as http://127.0.0.1:8265.
        ray_version: the Ray it runs.
    """

    address: str
    ray_version: str

    @cached_property
    def client(self) -> "JobSubmissionClient":
        """Ray's own client, created on first use because importing ray takes a second."""
        from ray.job_submission import JobSubmissionClient

        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        return JobSubmissionClient(self.address, headers=authorisation())

    def jobs(self) -> JobList:
        """Every job that was submitted, newest first."""
        details = sorted(self._ask(self.client.list_jobs), key=lambda job: -(job.start_time or 0))
        states = [_state(job) for job in details if job.submission_id]
        return JobList(tuple(state for state in states if not state.id.startswith(PROBE_PREFIX)))

    def job(self, name: str) -> JobState:
        """One job by its id."""
        return _state(self._ask(lambda: self.client.get_job_info(name), name))

    def logs(self, name: str) -> str:
        """What a job has printed so far."""
        return str(self._ask(lambda: self.client.get_job_logs(name), name))

    def stop(self, name: str) -> bool:
        """Stop a job; False if it had already ended."""
        return bool(self._ask(lambda: self.client.stop_job(name), name))

    def submit(self, **request: Any) -> str:
        """Submit a job with the arguments of Ray's client and return its id; waits for a cluster that has
        just started until it accepts jobs.
        """
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while True:
            try:
                return self._ask(lambda: str(self.client.submit_job(**request)))
            except UserError as error:
                if _NOT_READY not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def follow(self, name: str, write: Callable[[str], object]) -> JobState:
        """Yield what a job prints until it ends, across lost connections.

        Raises:
            UserError: If the cluster stays unreachable; the job itself is not affected.
        """
        seen = failures = 0
        while failures < _RECONNECTS:
            try:
                for chunk in self._tail(name, seen):
                    write(chunk)
                    seen += len(chunk)
                    failures = 0
                return self.wait(name)
            except (OSError, RuntimeError):
                time.sleep(_POLL_SECONDS * 2**failures)
                failures += 1
        raise UserError(
            f"Expected '{self.address}' to stay reachable (lost it; the job continues): cocn jobs logs {name}"
        )

    def _tail(self, name: str, seen: int) -> Iterator[str]:
        """Chunks of the log after the first `seen` characters; the log is sent from its start each time."""
        import asyncio

        stream = self.client.tail_job_logs(name)
        with asyncio.Runner() as runner:
            while True:
                try:
                    chunk: str = runner.run(anext(stream))  # type: ignore[arg-type]
                except StopAsyncIteration:
                    return
                skipped = min(seen, len(chunk))
                seen -= skipped
                if len(chunk) > skipped:
                    yield chunk[skipped:]

    def wait(self, name: str, seconds: float | None = None) -> JobState:
        """The state of a job when it has ended, or after the given number of seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not (state := self.job(name)).finished and (deadline is None or time.monotonic() < deadline):
            time.sleep(_POLL_SECONDS)
        return state

    def _ask(self, question: Callable[[], Answer], name: str = "") -> Answer:
        try:
            return question()
        except RuntimeError as error:
            if "404" in str(error) or "does not exist" in str(error):
                raise UserError(
                    f"Expected a job of '{self.address}' (got '{name}'): cocn jobs list shows them"
                ) from error
            raise UserError(f"Expected an answer from '{self.address}' (got {_first_line(error)})") from error
        except OSError as error:
            raise _unreachable(self.address, error) from error


def connect(address: str) -> Cluster:
    """Connect to a cluster's dashboard.

    Raises:
        UserError: If nothing answers there, it is not a Ray dashboard, or it wants a different token.
    """
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(
            f"Expected '--address' to be the http address of a Ray dashboard, such as {_DEFAULT_ADDRESS} "
            f"(got '{address}')"
        )
    root = f"{parts.scheme}://{parts.netloc}"
    try:
        version = json.loads(_get(f"{root}/api/version", authorisation()))["ray_version"]
        _get(f"{root}/api/jobs/", authorisation())
    except urllib.error.HTTPError as error:
        raise _refusal(root, error) from error
    except OSError as error:
        raise _unreachable(root, error) from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"Expected a Ray dashboard at '{root}' (got an answer of something else)") from error
    return Cluster(root, str(version))


def token() -> str | None:
    """The token to send, from the places where Ray looks for one."""
    if value := os.environ.get("RAY_AUTH_TOKEN"):
        return value.strip()
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path.home() / ".ray" / "auth_token"
    if path.is_file():
        return path.read_text(encoding="utf-8").strip() or None
    if named:
        raise UserError(f"Expected RAY_AUTH_TOKEN_PATH to name a file (got '{named}')")
    return None


def authorisation() -> dict[str, str]:
    """The header that carries the token, or none."""
    value = token()
    return {"Authorization": f"Bearer {value}"} if value else {}


def admits_strangers(address: str) -> bool:
    """Whether a cluster responds without a token."""
    try:
        _get(f"{address}/api/jobs/", {}, _STRANGER_TIMEOUT_SECONDS)
    except OSError:
        return False
    return True


def _get(url: str, headers: Mapping[str, str], seconds: float = _REQUEST_TIMEOUT_SECONDS) -> bytes:
    request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - http or https, checked
    with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310
        return bytes(answer.read())


def _refusal(address: str, error: urllib.error.HTTPError) -> UserError:
    if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        got = "none" if error.code == HTTPStatus.UNAUTHORIZED else "another"
        return UserError(
            f"Expected the token of '{address}' (got {got}): set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, "
            "or put it in ~/.ray/auth_token"
        )
    return UserError(f"Expected a Ray dashboard at '{address}' (got status {error.code})")


def _unreachable(address: str, error: OSError) -> UserError:
    reason = getattr(error, "reason", None) or error
    text = getattr(reason, "strerror", None) or _first_line(reason)
    return UserError(f"Expected a Ray cluster at '{address}' (got: {text}): is it up, is its port forwarded?")


def _first_line(error: object) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _state(job: "JobDetails") -> JobState:
    metadata = dict(job.metadata or {})
    start = job.start_time or 0
    end = job.end_time or (time.time() * 1000 if start else 0)
    return JobState(
        id=job.submission_id or "",
        stage=metadata.get("cocn.stage", ""),
        status=str(getattr(job.status, "value", job.status)),
        seconds=round(max(end - start, 0) / 1000, 1),
        entrypoint=job.entrypoint,
        message=_first_line(job.message or "") if job.message else "",
        exit_code=job.driver_exit_code,
        metadata=metadata,
    )
