"""What a search found: its trials, how much each setting mattered, and the best as a configuration file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config
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
    values = config.model_dump()
    for key, value in point.items():
        _assign(values, key, value)
    return Config.model_validate(values)


def _assign(values: dict[str, Any], key: str, value: object) -> None:
    *sections, name = key.split(".")
    for section in sections:
        values = values.setdefault(section, {})
    values[name] = value


def _given_keys(section: BaseModel, prefix: str = "") -> Iterator[str]:
    """Dotted keys of settings that a file, a flag or a recipe has set."""
    for name in section.model_fields_set:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _given_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


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
    """YAML of a trial's settings, for `cocn train --config`: what was set and decides a result.

    Args:
        config: What the search varied, with the recipe of the model filled in.
        point: The settings of the trial.
    """
    chosen = apply_point(config, point)
    values = dict(dotted_values(chosen.model_dump(mode="json")))
    kept = {*point, "model.name", *_given_keys(config)}
    nested: dict[str, Any] = {}
    for key, mark in marks_of(Config):
        if key in kept and mark.decides != "nothing" and not mark.repeats and not mark.extends:
            _assign(nested, key, values[key])
    return str(yaml.safe_dump(nested, sort_keys=False, allow_unicode=True))
