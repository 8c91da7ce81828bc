"""Checkpoint → predictions, as files or behind MLflow.

In: a checkpoint and a store. Out: classes and probabilities.
"""
