"""Compressed Convolution Networks for graphs of any size."""

from cocn.graphs import GraphBatch, prepare
from cocn.models import CoCN, ExpandedCoCN, SparseCoCN, VanillaCoCN
from cocn.segmented import SegmentCoCN
from cocn.segments import SegmentBatch
from cocn.transforms import ArrangeTies

__all__ = [
    "ArrangeTies",
    "CoCN",
    "ExpandedCoCN",
    "GraphBatch",
    "SegmentBatch",
    "SegmentCoCN",
    "SparseCoCN",
    "VanillaCoCN",
    "prepare",
]
