"""Thin entry points: the command line and the programs that Ray jobs run."""

from pipeline.runtime.threads import wait_passively

# Before anything imports torch.
wait_passively()
