"""GraphSAGE on sampled neighbourhoods: with every neighbour it is the full graph, and it resumes exactly."""

import logging
from pathlib import Path

import pytest
import torch

from pipeline.config.loading import Config
from pipeline.models.networks import Inputs, build_model
from pipeline.store.graph_store import GraphStore
from pipeline.training.feeds import GraphFeed, open_feed
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.neighbour_feed import NeighbourFeed, can_sample
from pipeline.training.results import read_epochs, read_result
from tests.pipeline.conftest import tiny_config

# PyG scripts some functions when it is imported, and torch is about to retire that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
CPU = torch.device("cpu")


@pytest.fixture
def _sampler() -> None:
    if not can_sample():
        pytest.skip("the extra [torch-sparse] is optional and not installed")


def sage(output: Path, **settings: object) -> Config:
    return tiny_config(output, model__name="sage", train__batch_size=16, **settings)


def open_sage(store: GraphStore, config: Config) -> tuple[torch.nn.Module, object]:
    torch.manual_seed(0)
    model = build_model(config.model, config.segments, Inputs.of(store, config)).eval()
    return model, open_feed(store, config, model, 0, 1, CPU)


def test_without_a_sampler_the_whole_graph_is_read_and_one_line_says_so(
    tiny_store: GraphStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch_geometric import typing

    monkeypatch.setattr(typing, "WITH_PYG_LIB", False)
    monkeypatch.setattr(typing, "WITH_TORCH_SPARSE", False)
    can_sample.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            _, feed = open_sage(tiny_store, sage(tiny_store.path.parent))
            assert isinstance(feed, GraphFeed)
    assert caplog.text.count("sage reads the whole graph in every step") == 1
    can_sample.cache_clear()


@pytest.mark.torch_sparse
@pytest.mark.usefixtures("_sampler")
def test_with_every_neighbour_the_answers_are_those_of_the_whole_graph(tiny_store: GraphStore) -> None:
    model, feed = open_sage(tiny_store, sage(tiny_store.path.parent, model__neighbours=100))
    assert isinstance(feed, NeighbourFeed)
    whole = feed.predict(model, "train")
    expected = torch.nn.functional.cross_entropy(whole.logits, whole.label, reduction="sum")
    feed.start_epoch(0)
    shares = list(feed.shares())
    assert len(shares) == feed.steps_per_epoch > 1
    assert sum(share.rows for share in shares) == whole.label.numel()
    total = sum(feed.losses(model, share, None) for share in shares)
    torch.testing.assert_close(total, expected)


@pytest.mark.torch_sparse
@pytest.mark.usefixtures("_sampler")
def test_batches_depend_on_seed_epoch_and_step_alone(tiny_store: GraphStore) -> None:
    config = sage(tiny_store.path.parent, model__neighbours=2)
    model, feed = open_sage(tiny_store, config)
    assert isinstance(feed, NeighbourFeed)

    def losses(feed: NeighbourFeed, epoch: int) -> list[float]:
        feed.start_epoch(epoch)
        return [float(feed.losses(model, share, None).detach()) for share in feed.shares()]

    first = losses(feed, 1)
    assert losses(feed, 2) != first
    _, other = open_sage(tiny_store, config)
    assert isinstance(other, NeighbourFeed)
    torch.rand(3)
    other.start_epoch(1)
    next(iter(other.shares()))
    _, resumed = open_sage(tiny_store, config)
    assert isinstance(resumed, NeighbourFeed)
    resumed.restore(other.cursor(), None)
    assert losses(resumed, 1) == first[1:]


@pytest.mark.torch_sparse
@pytest.mark.usefixtures("_sampler")
def test_it_trains(tiny_store: GraphStore, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = sage(tmp_path, train__epochs=30, model__hidden_channels=32, model__dropout=0.0)
    train_worker(TrainJob(config, tiny_store.path, tmp_path))
    losses = [record.train_loss for record in read_epochs(tmp_path)]
    assert losses[-1] < 0.9 * losses[0]
    result = read_result(tmp_path)
    assert result is not None
    assert result.epochs == 30
