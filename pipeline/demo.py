"""The demo: a real path from a generated graph to a comparison, in minutes on two cores."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.comparison.history import select_trainings
from pipeline.comparison.model_figures import figures_for
from pipeline.comparison.report import LOCAL_ADDRESS, write_report
from pipeline.comparison.statistics import Comparison, compare
from pipeline.config.loading import Config, load_config
from pipeline.engine.session import ray_session
from pipeline.models.metrics import score
from pipeline.runtime.passwords import without_password
from pipeline.storage.object_store import Remote
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_store import TrackingStore
from pipeline.tracking.runs import start_parent
from pipeline.training.campaign import vary
from pipeline.training.launch import train
from pipeline.training.prepare import open_prepared
from pipeline.training.results import TrainResult

REPORT = "report.html"

#: Everything else is the default.
SETTINGS: dict[str, object] = {
    "tracking.experiment": "demo",
    "data.source": "minesweeper",
    "resources.workers": 2,
}
#: Fewer epochs than the defaults, for three minutes on two cores.
PER_MODEL: dict[str, dict[str, object]] = {"segment": {"epochs": 30}, "sparse": {"epochs": 100}}


@dataclass(frozen=True)
class Baseline:
    """A score to beat."""

    name: str
    metric: str
    value: float


@dataclass(frozen=True)
class Demo:
    """What the demo left behind."""

    store: Path | Remote
    report: Path
    tracking_uri: str
    parent_run: str | None
    seconds: float
    baselines: tuple[Baseline, ...]
    trainings: tuple[TrainResult, ...]
    comparison: Comparison


def run_demo(output: Path, side: int, seed: int, say: Callable[[str], None]) -> Demo:
    """Generate, preprocess, train two models, compare.

    Args:
        output: directory that everything goes to.
        side: side of the minesweeper board.
        seed: seed of the board and of the models.
        say: Called with one line before each step.
    """
    workers = int(str(SETTINGS["resources.workers"]))
    # One Ray for all stages: starting it for each would take seconds every time.
    with ray_session(max(os.cpu_count() or 1, workers)):
        return _run_stages(output, side, seed, say)


def _run_stages(output: Path, side: int, seed: int, say: Callable[[str], None]) -> Demo:
    start = time.monotonic()
    config = load_config(
        None, {**SETTINGS, "output": output, "data.side": side, "data.seed": seed, "train.seed": seed}
    )
    say(
        f"1/4  minesweeper {side}×{side}: generate, store, positions by Ray tasks, segments into Arrow shards"
    )
    store = open_prepared(config, models=list(PER_MODEL), say=say)
    baselines = measure_baselines(store, config)
    with start_parent("demo", config) as parent:
        results = []
        for number, name in enumerate(PER_MODEL, start=2):
            where = "two Ray Train workers" if name == "segment" else "the full graph"
            say(f"{number}/4  train {name} on {where}")
            results.append(train(configure(config, name, store), store, parent))
        say("4/4  compare")
        tracking = TrackingStore(parent.reference.uri, parent.reference.artifacts)
        selection = select_trainings(tracking, config.tracking.experiment, dataset=store.manifest.name)
        comparison = compare(selection)
        figures, address = figures_for(selection, store), tracking.web_address or LOCAL_ADDRESS
        report = write_report(output / REPORT, comparison, selection, figures=figures, tracking_url=address)
        parent.log_artifact(report)
        return Demo(
            store=store.place,
            report=report.absolute(),
            tracking_uri=without_password(parent.reference.uri),
            parent_run=parent.run_id,
            seconds=time.monotonic() - start,
            baselines=baselines,
            trainings=tuple(results),
            comparison=comparison,
        )


def configure(config: Config, name: str, store: GraphStore) -> Config:
    """The configuration of one of the demo's models."""
    varied = vary(config, name, config.data.split, config.train.seed, store)
    # On a graph of this size training finishes sooner than a group of workers starts.
    workers = varied.resources.workers if name == "segment" else 1
    return varied.model_copy(
        update={
            "train": varied.train.model_copy(update=PER_MODEL[name]),
            "resources": varied.resources.model_copy(update={"workers": workers}),
        }
    )


def measure_baselines(store: GraphStore, config: Config) -> tuple[Baseline, ...]:
    """What predicting the majority class, and a model of a node's own features, score on the test nodes."""
    from sklearn.linear_model import LogisticRegression

    features, labels, split = store.features(), store.labels(), store.split(config.data.split)
    train, test = split == 0, split == 2
    share = np.bincount(labels[train], minlength=2) / train.sum()
    constant = np.tile(share, (int(test.sum()), 1))
    fitted = LogisticRegression(max_iter=1000).fit(features[train], labels[train])
    return (
        Baseline("majority class", "roc_auc", score(constant, labels[test])["roc_auc"]),
        Baseline(
            "own features (logistic regression)",
            "roc_auc",
            score(fitted.predict_proba(features[test]), labels[test])["roc_auc"],
        ),
    )
