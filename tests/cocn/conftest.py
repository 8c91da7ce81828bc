"""Settings for all tests of the models."""

import warnings
from collections.abc import Iterator

import pytest
import torch

with warnings.catch_warnings():
    # PyG, when imported, compiles a class with a function that torch deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric  # noqa: F401


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Tensors here are so small that threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _same_start() -> Iterator[None]:
    """Every test draws the same random numbers in any order, and restores the default dtype."""
    before = torch.get_default_dtype()
    torch.manual_seed(3)
    yield
    torch.set_default_dtype(before)
