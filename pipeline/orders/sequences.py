"""Circular node sequences, as `cocn.loading.sequences` makes them."""

from cocn.loading.sequences import (
    Sequences,
    dense_ranks,
    from_order,
    head_columns,
    place,
    place_head,
    refine_colours,
    sequence,
    tie_order,
)

__all__ = [
    "Sequences",
    "dense_ranks",
    "from_order",
    "head_columns",
    "place",
    "place_head",
    "refine_colours",
    "sequence",
    "tie_order",
]
