"""One model on several ranks: replicas that share out the rows of a step."""

import warnings

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def distribute(model: nn.Module, world_size: int) -> nn.Module:
    """The model as this rank runs it; gradients are averaged over ranks."""
    if world_size == 1:
        return model
    # With it buckets keep their layout for good, so the order of sums, and with it every bit, is the same
    # after a restart; and features that are switched off may leave parameters without a gradient.
    warnings.filterwarnings("ignore", "find_unused_parameters=True was specified")
    return DistributedDataParallel(model, find_unused_parameters=True, gradient_as_bucket_view=True)
