"""Running out of memory, reported in one line that says what to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pipeline.config.loading import Config
from pipeline.models.networks import streams
from pipeline.models.opponents import OPPONENTS
from pipeline.runtime.errors import UserError


@contextmanager
def explain_memory(config: Config) -> Iterator[None]:
    """Turn running out of memory into one line that says what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        exhausted = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not (exhausted or "allocate memory" in str(error)):
            raise
        raise UserError(memory_hint(config)) from error


def memory_hint(config: Config) -> str:
    """What to lower when memory runs out."""
    model = config.model
    sizes = f"model.hidden_channels (now {model.hidden_channels}), model.heads (now {model.heads})"
    if model.name in OPPONENTS:
        sizes = (
            f"model.hidden_channels (now {model.hidden_channels}), model.opponent.layers (now "
            f"{model.opponent.layers}) or train.batch_size, or try one that reads rows, such as 'sign'"
        )
    elif streams(model):
        sizes = f"train.batch_size (now {config.train.batch_size}), {sizes} or segments.length"
    else:
        sizes = (
            f"{sizes}, model.unit_layers or, for a collection, train.batch_size "
            f"(now {config.train.batch_size}); share the heads of one graph with --workers, or try 'segment'"
        )
    return f"Expected the training to fit in memory (got none left): lower {sizes}"
