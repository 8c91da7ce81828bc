"""PyG warns about torch while it is imported, and warnings are errors in tests."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import torch_geometric  # noqa: F401
