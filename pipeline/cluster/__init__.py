"""Submitting to a Ray cluster and asking after it.

In: a command line. Out: a Ray job, its state and its log.
"""
