"""Adam without torch's compiler takes exactly the steps of torch's own, and a training never loads it."""

import copy
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from pipeline.store.graph_store import GraphStore
from pipeline.training.adam import Adam
from tests.pipeline.conftest import tiny_config


def test_every_bit_of_the_weights_and_of_the_state_is_the_same() -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    theirs = copy.deepcopy(ours)
    settings = {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}
    optimisers = (Adam(ours.parameters(), **settings), torch.optim.Adam(theirs.parameters(), **settings))
    for step in range(4):
        x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step))
        for model, optimiser in zip((ours, theirs), optimisers, strict=True):
            model(x).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()
        if step == 1:
            for optimiser in optimisers:
                optimiser.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, other)
        assert mine.requires_grad
        assert mine.grad is None
    states = [optimiser.state_dict()["state"] for optimiser in optimisers]
    assert all(torch.equal(states[0][key]["exp_avg"], states[1][key]["exp_avg"]) for key in states[0])


def test_a_training_loads_neither_torchs_compiler_nor_what_draws(
    tiny_store: GraphStore, tmp_path: Path
) -> None:
    config = tiny_config(tmp_path, model__name="sparse", train__epochs=1)
    directory = tmp_path / "training"
    directory.mkdir()
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from pipeline.config.loading import Config\n"
        "from pipeline.training.launch import TrainJob, train_here\n"
        "config, store, directory = sys.argv[1:]\n"
        "train_here(TrainJob(Config.model_validate_json(config), Path(store), Path(directory)))\n"
        "print(*sys.modules)\n"
    )
    arguments = [config.model_dump_json(), str(tiny_store.path), str(directory)]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "pipeline.training.loop" in loaded
    assert sorted(loaded & {"torch._dynamo", "sympy", "torch_geometric", "networkit", "mlflow"}) == []
