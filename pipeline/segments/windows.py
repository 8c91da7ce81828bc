"""Windows over circular sequences, as `cocn.loading.cutting` cuts them, with errors for users."""

from cocn.loading import cutting
from cocn.loading.cutting import (
    MAX_LENGTH,
    Band,
    Segments,
    Windows,
    build_band,
    build_segments,
    num_words,
    unpack,
)
from pipeline.runtime.errors import UserError

__all__ = [
    "MAX_LENGTH",
    "Band",
    "LengthError",
    "Segments",
    "Windows",
    "build_band",
    "build_segments",
    "check_length",
    "num_words",
    "unpack",
]


class LengthError(UserError, ValueError):
    """A segment length that the graph or the bit masks cannot hold."""


def check_length(length: int, num_nodes: int) -> None:
    """Refuse a segment length that is out of range or exceeds the number of nodes.

    Raises:
        LengthError: if it is out of range or above the number of nodes.
    """
    try:
        cutting.check_length(length, num_nodes)
    except ValueError as error:
        raise LengthError(str(error)) from error
