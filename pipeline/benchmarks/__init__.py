"""Measurements, one module per subject; each has `run(...)` and returns a frozen dataclass."""
