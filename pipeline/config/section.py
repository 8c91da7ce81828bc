"""What every section of the configuration is built on."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values never change after reading.

    Every setting is declared with `decides(…)`, which says what depends on it: see `pipeline.config.marks`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
