"""What a search found: its trials, how much each setting mattered, and the best as a configuration file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config, load_config
from pipeline.config.marks import marks_of
from pipeline.config.nested_keys import dotted_values
from pipeline.tuning.space import Point, Space

#: With fewer trials nothing can be said about which settings mattered.
_LEAST_TRIALS = 4


class Trial(BaseModel):
    """One trial, as far as it got."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    point: dict[str, str | int | float | bool]
    """Its settings."""
    status: str
    """`finished`, `stopped` early because others did better, `failed`, or `unfinished`."""
    epochs: int
    val_metric: float | None
    """Best validation score."""
    test_metric: float | None = None
    run_id: str | None = None
    problem: str = ""
    """What went wrong, in one line."""


@dataclass(frozen=True)
class Tuned:
    """The result of `cocn tune`."""

    model: str
    dataset: str
    metric: str
    best: Trial
    importance: dict[str, float]
    """How much the score depends on each setting, as a share; empty with too few trials."""
    trials: tuple[Trial, ...]
    config_file: Path
    report: Path
    parent_run: str | None


def apply_point(config: Config, point: Point) -> Config:
    """The configuration of a trial."""
    values = {section: dict(content) for section, content in _sections(config)}
    for key, value in point.items():
        section, _, name = key.partition(".")
        values[section][name] = value
    return Config.model_validate({**config.model_dump(), **values})


def _sections(config: Config) -> list[tuple[str, dict[str, Any]]]:
    return [(name, value) for name, value in config.model_dump().items() if isinstance(value, dict)]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the best validation score; the first of equal ones."""
    scored = [trial for trial in trials if trial.val_metric is not None]
    return max(scored, key=lambda trial: (trial.val_metric, -trial.number), default=None)


def measure_importance(trials: Sequence[Trial], space: Space) -> dict[str, float]:
    """How much the score of trials depends on each setting, as shares of 1.

    A forest learns the score from the settings; a setting matters by as much as the forest's error grows when
    its values are shuffled among trials.
    """
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.inspection import permutation_importance

    scored = [trial for trial in trials if trial.val_metric is not None]
    if len(scored) < _LEAST_TRIALS:
        return {}
    places = np.array([[space[key].place(trial.point[key]) for key in space] for trial in scored])
    scores = np.array([trial.val_metric for trial in scored])
    forest = RandomForestRegressor(200, random_state=0).fit(places, scores)
    worse = permutation_importance(forest, places, scores, n_repeats=20, random_state=0).importances_mean
    positive = np.maximum(worse, 0)
    total = float(positive.sum())
    shares = positive / total if total else positive
    return {key: float(share) for key, share in zip(space, shares, strict=True)}


def best_config(config: Config, point: Point) -> str:
    """YAML of a trial's settings, for `cocn train --config`: what differs from the default and affects a
    result."""
    chosen, defaults = apply_point(config, point), load_config()
    marks = dict(marks_of(Config))
    values = dict(dotted_values(chosen.model_dump(mode="json")))
    before = dict(dotted_values(defaults.model_dump(mode="json")))
    nested: dict[str, dict[str, Any]] = {}
    for key, mark in marks.items():
        kept = key in point or values[key] != before[key]
        if mark.decides != "nothing" and not mark.repeats and not mark.extends and kept:
            section, _, name = key.partition(".")
            nested.setdefault(section, {})[name] = values[key]
    nested.setdefault("model", {})["name"] = chosen.model.name
    return str(yaml.safe_dump(nested, sort_keys=False, allow_unicode=True))
