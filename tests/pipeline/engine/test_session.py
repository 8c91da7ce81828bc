"""Ray as the pipeline starts it: on loopback, with a token, shared if it is already running."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import psutil
from pipeline.engine.session import local_cluster, ray_session

with local_cluster(cpus=1):
    import ray

    with ray_session():
        threads = ray.get(ray.remote(lambda: __import__("os").environ["OMP_NUM_THREADS"]).remote())
    assert ray.is_initialized()
    listening = [
        connection.laddr.ip
        for process in psutil.Process().children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    mode = ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN
print(threads, len(listening) > 0, all(ip.endswith("127.0.0.1") or ip == "::1" for ip in listening), mode)
assert not ray.is_initialized()
"""


def run(program: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_local_cluster_listens_on_loopback_with_a_token() -> None:
    # Imports are sorted, so Ray is often imported first: the harder order.
    result = run("import ray" + PROGRAM)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["1", "True", "True", "True"]


@pytest.mark.parametrize(
    ("address", "expected"), [("", "0 token True"), ("10.0.0.1:6379", "None None False")]
)
def test_environment_depends_on_the_address(address: str, expected: str) -> None:
    result = run(
        "from os import environ;"
        "from pipeline.engine.session import LOOPBACK_SWITCH, _prepare_environment; _prepare_environment();"
        "print(environ.get(LOOPBACK_SWITCH), environ.get('RAY_AUTH_MODE'), 'RAY_AUTH_TOKEN' in environ)",
        RAY_ADDRESS=address,
        HOME="/nonexistent",
    )
    assert result.stdout.strip() == expected
