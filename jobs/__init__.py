"""Thin entry points: the command line and the programs that Ray jobs run."""
