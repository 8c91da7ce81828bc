"""Several trainings in one command: every model on every split with every seed, under one parent run."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.config.loading import Config
from pipeline.models.networks import FAMILY, MODELS
from pipeline.models.recipes import with_model
from pipeline.runtime.errors import UserError
from pipeline.runtime.spelling import suggest
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.runs import start_parent
from pipeline.training.launch import train
from pipeline.training.results import TrainResult, read_epochs


@dataclass(frozen=True)
class Summary:
    """One model over its splits and seeds."""

    model: str
    dataset: str
    metric: str
    num_trainings: int
    mean: float
    std: float
    mean_seconds: float
    protocol: str = "holdout"
    """`gin` if the test part itself chose the epoch, the same for all folds."""


@dataclass(frozen=True)
class Campaign:
    """What `cocn train` did."""

    parent_run: str | None
    summaries: tuple[Summary, ...]
    trainings: tuple[TrainResult, ...]


def run_campaign(
    config: Config,
    store: GraphStore,
    models: Sequence[str],
    splits: Sequence[int],
    seeds: Sequence[int],
    *,
    settings: Mapping[str, Config] | None = None,
) -> Campaign:
    """Train every combination; trainings already finished are kept.

    Args:
        config: shared by all trainings except those in `settings`; model, split and seed vary.
        store: the graph, with the stages the models need.
        models: names of models.
        splits: numbers of splits.
        seeds: seeds of parameters and shuffling.
        settings: configurations of models that have their own.
    """
    check_models(models)
    own = settings or {}
    with start_parent("train", config) as parent:
        results = [
            train(
                vary(own.get(model, config), model, split, seed, store),
                store,
                parent,
            )
            for model in models
            for split in splits
            for seed in seeds
        ]
        return Campaign(parent.run_id, summarise(results), tuple(results))


def check_models(models: Sequence[str]) -> None:
    """Refuse unknown model names, before any work.

    Raises:
        UserError: suggesting the nearest model.
    """
    for name in models:
        if name not in MODELS:
            hint = suggest(name, MODELS, "`cocn train --help` shows what each is")
            raise UserError(f"Expected a model among {', '.join(MODELS)} (got '{name}'): {hint}")


def vary(config: Config, model: str, split: int, seed: int, store: GraphStore | None = None) -> Config:
    """The configuration of one training.

    Without a store the recipe of the model is left open.

    A baseline has no heads to divide and gets one worker on a single graph; the graphs of a collection are
    divided among workers for every model.
    """
    collection = store is not None and store.is_collection
    workers = config.resources.workers if model in FAMILY or collection else 1
    if store is None:
        config = config.model_copy(update={"model": config.model.model_copy(update={"name": model})})
    else:
        config = with_model(config, model, store)
    return config.model_copy(
        update={
            "data": config.data.model_copy(update={"split": split}),
            "train": config.train.model_copy(update={"seed": seed}),
            "resources": config.resources.model_copy(update={"workers": workers}),
        }
    )


def summarise(results: Sequence[TrainResult]) -> tuple[Summary, ...]:
    """Mean ± standard deviation of each model."""
    names = list(dict.fromkeys(result.model for result in results))
    groups = [[result for result in results if result.model == name] for name in names]
    return tuple(
        Summary(
            model=group[0].model,
            dataset=group[0].dataset,
            metric=group[0].metric,
            num_trainings=len(group),
            mean=statistics.fmean(scores),
            std=statistics.stdev(scores) if len(group) > 1 else 0.0,
            mean_seconds=statistics.fmean(result.train_seconds for result in group),
            protocol=group[0].protocol,
        )
        for group, scores in ((group, _scores_of(group)) for group in groups)
    )


def _scores_of(group: Sequence[TrainResult]) -> list[float]:
    """The test score of each training."""
    if group[0].protocol != "gin":
        return [result.test_metric for result in group]
    return scores_at_best_epoch([curve_of(result) for result in group])


def curve_of(result: TrainResult) -> dict[int, float]:
    """Validation score by epoch, where it was taken."""
    epochs = read_epochs(result.checkpoint.parent)
    return {record.epoch: record.val_metric for record in epochs if record.val_metric is not None}


def scores_at_best_epoch(curves: Sequence[Mapping[int, float]]) -> list[float]:
    """Scores of all folds after the same epoch, the one with the best mean over the folds.

    This is the protocol of the GIN paper; each fold's own best epoch would report even more.
    """
    epochs = set.intersection(*(set(curve) for curve in curves))
    return max(([curve[epoch] for curve in curves] for epoch in sorted(epochs)), key=statistics.fmean)
