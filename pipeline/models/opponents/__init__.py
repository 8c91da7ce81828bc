"""The networks that people would use instead, under the same loop, splits, checkpoints and tracking.

`registry.OPPONENTS` lists them; one file per family has the networks, `operators` the sparse products they
share and `inputs` what they read. They know nothing about stores: :mod:`pipeline.training.opponent_inputs`
reads those for them.
"""

from pipeline.models.opponents.base import Opponent
from pipeline.models.opponents.inputs import OpponentGraph, RowBatch
from pipeline.models.opponents.registry import OPPONENTS, STAND_IN_COLUMNS, Sizes, build_opponent

__all__ = [
    "OPPONENTS",
    "STAND_IN_COLUMNS",
    "Opponent",
    "OpponentGraph",
    "RowBatch",
    "Sizes",
    "build_opponent",
]
