"""Threads that wait without spinning, so that a busy machine does not slow a training down many times over.

On a machine whose cores are shared, a thread that spins at a barrier holds the core that the thread it waits
for needs: two threads then take ten to twenty times as long as one. OpenMP reads its policy when it is
loaded, so this must run before torch is imported.
"""

import os

POLICY = "OMP_WAIT_POLICY"


def wait_passively() -> None:
    """Let OpenMP's threads sleep while they wait; a policy that the user has chosen is kept."""
    os.environ.setdefault(POLICY, "PASSIVE")
