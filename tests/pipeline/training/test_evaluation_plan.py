"""When a training validates, what it scores within a time budget, and that both repeat."""

from pathlib import Path

import pytest
import torch

from pipeline.models.networks import Inputs, build_model
from pipeline.store.graph_store import GraphStore
from pipeline.training import evaluation_plan
from pipeline.training.evaluation_plan import EvaluationPlan, SampledFeed, validation_interval
from pipeline.training.feeds import open_feed
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.protocol import Feed
from pipeline.training.results import TrainResult, read_result
from tests.pipeline.conftest import tiny_config


def make_feed(store: GraphStore, output: Path, name: str) -> Feed:
    config = tiny_config(output, model__name=name)
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(store, config))
    return open_feed(store, config, model, 0, 1, torch.device("cpu"))


def train(store: GraphStore, directory: Path, **settings: object) -> TrainResult:
    directory.mkdir()
    config = tiny_config(directory, model__name="segment", **settings)
    train_worker(TrainJob(config, store.path, directory))
    result = read_result(directory)
    assert result is not None
    return result


def test_small_parts_are_validated_after_every_epoch(tiny_store: GraphStore, tmp_path: Path) -> None:
    settings = tiny_config(tmp_path, train__epochs=100).train
    for name in ("segment", "sparse"):
        assert validation_interval(make_feed(tiny_store, tmp_path, name), settings) == 1


def test_large_parts_are_validated_less_often_but_ten_times_at_least(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluation_plan, "THIN_FROM_ROWS", 1)
    feed = make_feed(tiny_store, tmp_path, "segment")
    assert isinstance(feed, SampledFeed)
    cost = feed.num_rows("val") / feed.num_rows("train") / 3
    assert cost > 0.1  # half as many rows: a sixth of the time
    intervals = {
        epochs: validation_interval(feed, tiny_config(tmp_path, train__epochs=epochs).train)
        for epochs in (100, 10, 5)
    }
    assert intervals == {100: 2, 10: 1, 5: 1}
    assert "validating after every 2 epochs" in caplog.text
    asked = tiny_config(tmp_path, train__epochs=100, train__validate_every=7).train
    assert validation_interval(feed, asked) == 7


def test_the_last_epoch_is_always_validated(tiny_store: GraphStore, tmp_path: Path) -> None:
    settings = tiny_config(tmp_path, train__epochs=5, train__validate_every=2).train
    plan = EvaluationPlan(make_feed(tiny_store, tmp_path, "segment"), settings)
    assert [epoch for epoch in range(5) if plan.is_validation_due(epoch)] == [1, 3, 4]


def test_a_budget_that_is_too_small_scores_a_sample_and_says_so(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(evaluation_plan, "LEAST_ROWS", 10)
    whole = train(tiny_store, tmp_path / "whole", train__metric="accuracy")
    # Of the budget nothing is left after the first step.
    short = train(tiny_store, tmp_path / "short", train__metric="accuracy", train__time_budget=1e-3)
    assert short.out_of_time
    assert whole.test_rows is not None
    assert short.test_rows is not None
    assert 10 <= short.test_rows < whole.test_rows
    assert "of the test part" in caplog.text


def test_a_sample_is_the_same_each_time_and_part_of_the_whole(tiny_store: GraphStore, tmp_path: Path) -> None:
    feed = make_feed(tiny_store, tmp_path, "segment")
    assert isinstance(feed, SampledFeed)
    model = torch.nn.Module()
    model.forward = lambda batch: torch.zeros(batch.node.numel(), 2)  # type: ignore[method-assign]
    once, again = (feed.predict_sample(model, "test", 0.5) for _ in range(2))
    whole = feed.predict(model, "test")
    assert torch.equal(once.row, again.row)
    assert 0 < once.row.numel() < whole.row.numel()
    assert set(once.row.tolist()) < set(whole.row.tolist())


def test_without_a_budget_nothing_is_kept_back(tiny_store: GraphStore, tmp_path: Path) -> None:
    plan = EvaluationPlan(make_feed(tiny_store, tmp_path, "segment"), tiny_config(tmp_path).train)
    plan.start_epoch()
    plan.record_step()
    assert plan.reserve() == 0
    assert plan.share("test") == 1
