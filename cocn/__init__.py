"""Compressed Convolution Networks for graphs of any size."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cocn.graphs import GraphBatch, prepare
    from cocn.loading.loader import SegmentLoader
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
    "SegmentLoader",
    "SparseCoCN",
    "VanillaCoCN",
    "prepare",
]

_MODULES = {
    "ArrangeTies": "cocn.transforms",
    "CoCN": "cocn.models",
    "ExpandedCoCN": "cocn.models",
    "GraphBatch": "cocn.graphs",
    "SegmentBatch": "cocn.segments",
    "SegmentCoCN": "cocn.segmented",
    "SegmentLoader": "cocn.loading.loader",
    "SparseCoCN": "cocn.models",
    "VanillaCoCN": "cocn.models",
    "prepare": "cocn.graphs",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: the processes that compute orders and cut windows need no torch.
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'cocn' has no attribute '{name}'")
