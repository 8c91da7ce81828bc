"""The loop: resumed equals undisturbed, ranks agree, every model learns, a non-finite loss stops it."""

import math
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as multiprocessing

import pipeline.training.loop
from pipeline.config.loading import Config, TrainConfig
from pipeline.ingest.generators import minesweeper
from pipeline.runtime.errors import UserError
from pipeline.store.access import create_store
from pipeline.store.graph_store import GraphStore
from pipeline.tracking.mlflow_server import free_port
from pipeline.training.checkpoint import latest_checkpoint, read_state
from pipeline.training.job import TrainJob
from pipeline.training.launch import may_go_on
from pipeline.training.loop import train_worker
from pipeline.training.optimisation import balance_classes, make_optimiser, set_learning_rate, step_seed
from pipeline.training.results import TrainResult, read_epochs, read_result
from tests.pipeline.conftest import SIDE, Parameters, prepare_tiny, tiny_config


class KilledError(Exception):
    """A kill, as far as the loop can tell."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(config: Config, store: GraphStore, name: str) -> tuple[TrainJob, TrainResult]:
    job = make_job(config, store, name)
    train_worker(job)
    result = read_result(job.directory)
    assert result is not None
    return job, result


def make_job(config: Config, store: GraphStore, name: str) -> TrainJob:
    directory = store.path.parent / name
    directory.mkdir(exist_ok=True)
    return TrainJob(config, store.path, directory)


@pytest.mark.parametrize(("optimiser", "after"), [("adamw", 0.99), ("adam", 0.9)])
def test_weight_decay_apart_from_the_gradient_and_in_it(optimiser: str, after: float) -> None:
    settings = TrainConfig(optimiser=optimiser, learning_rate=0.1, weight_decay=0.1)  # type: ignore[arg-type]
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.zeros(1)
    make_optimiser([weight], settings).step()
    assert weight.item() == pytest.approx(after, abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"model__name": "segment"},
        {"model__name": "segment", "model__positions": "explicit"},
        {"model__name": "segment", "model__positions": "implicit"},
        {"model__name": "sparse"},
        {"model__name": "expanded"},
    ],
    ids=["segment", "segment-explicit", "segment-implicit", "sparse", "expanded"],
)
def test_resumed_equals_undisturbed(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    config = tiny_config(tmp_path, train__checkpoint_seconds=0, **settings)
    whole_job, whole = run(config, tiny_store, "whole")
    steps_per_epoch = 1 if settings["model__name"] != "segment" else 4
    kill_at = steps_per_epoch + 1  # in the middle of the second epoch, or at its end
    real = pipeline.training.loop.agree_on_step
    calls = 0

    def kill(loss: torch.Tensor, out_of_time: bool) -> tuple[float, bool]:
        nonlocal calls
        calls += 1
        if calls == kill_at + 1:
            raise KilledError
        return real(loss, out_of_time)

    monkeypatch.setattr(pipeline.training.loop, "agree_on_step", kill)
    broken = make_job(config, tiny_store, "broken")
    with pytest.raises(KilledError):
        train_worker(broken)
    last = latest_checkpoint(broken.directory, "last")
    assert last is not None
    assert read_state(last).step == kill_at
    monkeypatch.undo()
    train_worker(broken)

    resumed = read_result(broken.directory)
    assert resumed is not None
    assert resumed.weights_sha256 == whole.weights_sha256
    assert resumed.test == whole.test
    losses = [[record.train_loss for record in read_epochs(j.directory)] for j in (whole_job, broken)]
    assert losses[0] == losses[1]


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(
    tiny_store: GraphStore, tmp_path: Path
) -> None:
    digests = [
        run(tiny_config(tmp_path, train__seed=seed, train__epochs=1), tiny_store, name)[1].weights_sha256
        for seed, name in ((0, "a"), (0, "b"), (1, "c"))
    ]
    assert digests[0] == digests[1] != digests[2]


def _spawned(rank: int, jobs: list[TrainJob], port: int) -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for job in jobs:
        train_worker(job, rank, 2)
    torch.distributed.destroy_process_group()


def test_one_and_two_workers_agree(tiny_store: GraphStore, tmp_path: Path) -> None:
    """Two ranks divide the rows of a step, or the heads of a whole graph."""
    kinds: list[dict[str, object]] = [
        {"model__positions": "fixed"},
        {"model__positions": "explicit", "model__node_features": False},
        {"model__name": "sparse", "model__positions": "implicit"},
        {"model__name": "expanded"},
        {"model__name": "vanilla", "model__heads": 3},
    ]
    configs = [tiny_config(tmp_path, model__dropout=0.0, train__epochs=2, **kind) for kind in kinds]
    alone = [run(config, tiny_store, f"alone-{number}")[0] for number, config in enumerate(configs)]
    together = [make_job(config, tiny_store, f"together-{number}") for number, config in enumerate(configs)]
    multiprocessing.spawn(_spawned, (together, free_port()), nprocs=2)
    for one_job, two_job in zip(alone, together, strict=True):
        for one, two in zip(read_epochs(one_job.directory), read_epochs(two_job.directory), strict=True):
            assert one.train_loss == pytest.approx(two.train_loss, abs=1e-5)
            assert one.val_loss == pytest.approx(two.val_loss, abs=1e-5)
            assert one.val_metric == pytest.approx(two.val_metric, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("segment", "fixed"),
        ("sparse", "explicit"),
        ("sparse", "fixed"),
        ("expanded", "implicit"),
        ("vanilla", "explicit"),
    ],
)
def test_every_model_learns(tiny_store: GraphStore, tmp_path: Path, name: str, positions: str) -> None:
    settings = {"model__name": name, "model__positions": positions, "model__dropout": 0.0}
    config = tiny_config(tmp_path, train__epochs=30, **settings)
    job, result = run(config, tiny_store, name)
    losses = [record.train_loss for record in read_epochs(job.directory)]
    assert losses[-1] < 0.8 * losses[0]
    assert result.best_val_metric >= max(record.val_metric for record in read_epochs(job.directory)) - 1e-12


def test_patience_stops_early(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, train__epochs=100, train__patience=2, train__learning_rate=0.1)
    job, result = run(config, tiny_store, "patient")
    losses = [record.val_loss for record in read_epochs(job.directory)]
    assert result.epochs == len(losses) < 100
    assert min(losses) < min(losses[-2:])


def test_a_loss_that_is_no_number_stops_with_a_hint(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(
        tmp_path, train__learning_rate=1e30, train__clip=0, model__name="sparse", train__epochs=9
    )
    with pytest.raises(UserError, match=r"step \d+ of epoch \d+.*lower train.learning_rate"):
        run(config, tiny_store, "diverged")


def test_a_full_graph_step_is_not_repeated_after_a_kill_before_its_validation(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(tmp_path, model__name="sparse", train__checkpoint_seconds=0)
    _, whole = run(config, tiny_store, "whole")
    broken = make_job(config, tiny_store, "broken")

    def kill(*arguments: object) -> None:
        raise KilledError

    monkeypatch.setattr(pipeline.training.loop, "assess", kill)
    with pytest.raises(KilledError):
        train_worker(broken)
    monkeypatch.undo()
    train_worker(broken)
    resumed = read_result(broken.directory)
    assert resumed is not None
    assert resumed.weights_sha256 == whole.weights_sha256


@pytest.mark.parametrize("settings", [{}, {"model__positions": "explicit"}, {"model__name": "sparse"}])
def test_a_time_budget_ends_training_and_a_larger_one_goes_on(
    tiny_store: GraphStore, tmp_path: Path, settings: dict[str, object]
) -> None:
    whole_job, _ = run(tiny_config(tmp_path, **settings), tiny_store, "whole")
    _, short = run(tiny_config(tmp_path, train__time_budget=1e-9, **settings), tiny_store, "short")
    assert short.out_of_time
    assert short.epochs == (1 if settings.get("model__name") == "sparse" else 0)
    assert short.test_metric > 0
    assert may_go_on(short, None)
    assert may_go_on(short, short.train_seconds + 1)
    assert not may_go_on(short, 1e-9)

    continued_job, continued = run(tiny_config(tmp_path, **settings), tiny_store, "short")
    assert not continued.out_of_time
    losses = [[record.train_loss for record in read_epochs(j.directory)] for j in (whole_job, continued_job)]
    assert losses[0] == losses[1]


def test_epochs_between_validations_have_no_scores(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, train__epochs=5, train__validate_every=2)
    job, result = run(config, tiny_store, "seldom")
    records = read_epochs(job.directory)
    assert [record.val_metric is None for record in records] == [True, False, True, False, False]
    assert "val_loss" not in records[0].metrics()
    assert result.best_epoch in (1, 3, 4)


def test_a_metric_that_has_no_value_is_named(tiny_store: GraphStore, tmp_path: Path) -> None:
    graph = minesweeper(SIDE, num_splits=2)
    graph.labels[graph.splits[0] == 1] = 0
    store = prepare_tiny(create_store(tmp_path / "one-class", graph, Parameters(side=1)))
    with pytest.raises(UserError, match="'roc_auc' to have a value on the val part"):
        run(tiny_config(tmp_path), store, "one-class-run")


@pytest.mark.parametrize("name", ["segment", "sparse", "expanded"])
def test_bfloat16_stays_close_to_float32(tiny_store: GraphStore, tmp_path: Path, name: str) -> None:
    settings = {"model__name": name, "model__dropout": 0.0, "train__epochs": 2}
    jobs = [
        run(tiny_config(tmp_path, train__precision=precision, **settings), tiny_store, f"{name}-{precision}")
        for precision in ("float32", "bfloat16")
    ]
    exact, rounded = ([record.train_loss for record in read_epochs(job.directory)] for job, _ in jobs)
    assert rounded == pytest.approx(exact, rel=0.05)
    assert rounded != exact
    assert jobs[0][1].weights_sha256 != jobs[1][1].weights_sha256


def test_class_weights_give_classes_the_same_say(tiny_store: GraphStore, tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    weights = balance_classes(tiny_store, config, torch.device("cpu"))
    labels = torch.from_numpy(tiny_store.labels()[tiny_store.split(0) == 0].copy())
    counts = torch.bincount(labels, minlength=2)
    assert torch.allclose(weights * counts, torch.full((2,), labels.numel() / 2))
    digests = {
        on: run(
            tiny_config(tmp_path, train__class_weights=on, train__epochs=1), tiny_store, f"weighted-{on}"
        )[1]
        for on in (False, True)
    }
    assert digests[False].weights_sha256 != digests[True].weights_sha256


@pytest.mark.parametrize(("name", "remedy"), [("segment", "train.batch_size"), ("sparse", "--workers")])
def test_running_out_of_memory_says_what_to_lower(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    def exhaust(*arguments: object) -> None:
        torch.empty(2**55)

    monkeypatch.setattr(pipeline.training.loop, "set_learning_rate", exhaust)
    with pytest.raises(UserError, match=f"fit in memory.*lower .*{remedy}"):
        run(tiny_config(tmp_path, model__name=name), tiny_store, "exhausted")


def test_other_errors_are_not_about_memory(
    tiny_store: GraphStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr(pipeline.training.loop, "set_learning_rate", fail)
    with pytest.raises(RuntimeError, match="something else"):
        run(tiny_config(tmp_path), tiny_store, "failed")


def test_learning_rate_rises_and_falls_as_a_function_of_the_step(tmp_path: Path) -> None:
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)])

    def rates(**settings: object) -> list[float]:
        config = tiny_config(tmp_path, train__learning_rate=0.1, **settings)
        found = []
        for step in range(10):
            set_learning_rate(optimiser, config, step, 10)
            found.append(optimiser.param_groups[0]["lr"])
        return found

    assert rates() == [0.1] * 10
    assert rates(train__warmup_steps=3) == pytest.approx([0.025, 0.05, 0.075, *[0.1] * 7])
    cosine = [0.05 * (1 + math.cos(math.pi * step / 10)) for step in range(10)]
    assert rates(train__schedule="cosine") == pytest.approx(cosine)
    both = rates(train__schedule="cosine", train__warmup_steps=1)
    assert both == pytest.approx([0.05, *cosine[1:]])


def test_the_best_epoch_is_the_one_that_is_scored(tiny_store: GraphStore, tmp_path: Path) -> None:
    job, result = run(tiny_config(tmp_path, train__epochs=5), tiny_store, "best")
    records = read_epochs(job.directory)
    assert result.best_val_metric == max(record.val_metric for record in records)
    assert records[result.best_epoch].val_metric == result.best_val_metric


def test_steps_and_ranks_draw_different_numbers() -> None:
    seeds = {step_seed(seed, step, rank) for seed in range(3) for step in range(20) for rank in range(4)}
    assert len(seeds) == 3 * 20 * 4
