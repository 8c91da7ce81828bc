"""Faults at random moments of small jobs: the same command again must end with the same bytes.

`python -m tests.chaos --faults 100 --seed 7 --time-budget 30m` runs each job once undisturbed, then again
and again with one fault each, and writes one line of JSON per fault, which seed and number alone decide.
"""
