"""Threads wait without spinning unless the user says otherwise, in every command."""

import os
import subprocess
import sys

import pytest

from pipeline.runtime.threads import POLICY, wait_passively

PROGRAM = "import sys, jobs, os; assert 'torch' not in sys.modules; print(os.environ['OMP_WAIT_POLICY'])"


@pytest.mark.parametrize(("given", "expected"), [({}, "PASSIVE"), ({POLICY: "ACTIVE"}, "ACTIVE")])
def test_every_command_sets_the_policy_before_torch(given: dict[str, str], expected: str) -> None:
    plain = {name: value for name, value in os.environ.items() if name != POLICY}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**plain, **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_a_policy_that_was_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(POLICY, "ACTIVE")
    wait_passively()
    assert os.environ[POLICY] == "ACTIVE"
