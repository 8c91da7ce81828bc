"""Checkpoints: a round trip, the newest complete one counts, a half-written one never does."""

from pathlib import Path

import pytest
import torch
from torch import nn

from pipeline.runtime.errors import UserError
from pipeline.training.checkpoint import (
    TrainState,
    latest_checkpoint,
    load_optimiser,
    load_weights,
    read_state,
    save_checkpoint,
    weights_digest,
)


def trained() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimiser = torch.optim.AdamW(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.randn(4, 3)).sum().backward()
        optimiser.step()
    return model, optimiser


def test_round_trip_of_weights_optimiser_and_state(tmp_path: Path) -> None:
    model, optimiser = trained()
    state = TrainState(epoch=2, step=7, best_metric=0.25, seconds=1.5)
    path = save_checkpoint(tmp_path, "last", state, model.state_dict(), optimiser)
    other = nn.Linear(3, 2)
    restored = torch.optim.AdamW(other.parameters(), 0.1)
    load_weights(path, other)
    load_optimiser(path, restored)
    assert read_state(path) == state
    assert weights_digest(other.state_dict()) == weights_digest(model.state_dict())
    for one, two in ((model, optimiser), (other, restored)):
        two.zero_grad()
        one(torch.ones(4, 3)).sum().backward()
        two.step()
    assert weights_digest(other.state_dict()) == weights_digest(model.state_dict())


def test_only_the_newest_stays(tmp_path: Path) -> None:
    model, _ = trained()
    for step in range(3):
        save_checkpoint(tmp_path, "last", TrainState(step=step), model.state_dict())
    save_checkpoint(tmp_path, "best", TrainState(step=9), model.state_dict())
    newest = latest_checkpoint(tmp_path, "last")
    assert newest is not None
    assert read_state(newest).step == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best-00000001", "last-00000003"]


def test_what_a_kill_left_behind_is_not_a_checkpoint(tmp_path: Path) -> None:
    model, _ = trained()
    good = save_checkpoint(tmp_path, "last", TrainState(step=1), model.state_dict())
    half = tmp_path / ".last-00000002.77"
    half.mkdir()
    (half / "state.json").write_text("{}")
    assert latest_checkpoint(tmp_path, "last") == good
    assert latest_checkpoint(tmp_path / "nothing", "last") is None


def test_weights_of_another_shape_are_refused_in_one_line(tmp_path: Path) -> None:
    model, _ = trained()
    path = save_checkpoint(tmp_path, "best", TrainState(), model.state_dict())
    with pytest.raises(UserError, match="to fit the model") as caught:
        load_weights(path, nn.Linear(4, 2))
    assert "\n" not in str(caught.value)


def test_the_digest_tells_one_bit_apart() -> None:
    weights = {"a": torch.zeros(3)}
    changed = {"a": torch.tensor([0.0, 0.0, torch.finfo(torch.float32).tiny])}
    assert weights_digest(weights) != weights_digest(changed)
    assert weights_digest(weights) != weights_digest({"b": torch.zeros(3)})
