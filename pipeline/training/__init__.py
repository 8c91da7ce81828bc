"""One loop, what feeds it, checkpoints, and Ray Train.

In: a store and a configuration. Out: checkpoints, a result and a tracked run.
"""
