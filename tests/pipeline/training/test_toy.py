"""A toy of 1,000 nodes: with default settings our models are as good as the best of the opponents."""

from pathlib import Path

import numpy as np
from pydantic import BaseModel

from pipeline.config.loading import load_config
from pipeline.presets import default_preset
from pipeline.store.access import create_store
from pipeline.store.arrays import GraphArrays
from pipeline.store.cleaning import clean_edges
from pipeline.store.graph_store import GraphStore
from pipeline.store.splits import random_splits
from pipeline.training.campaign import vary
from pipeline.training.loop import train_worker
from pipeline.training.prepare import open_prepared
from pipeline.training.results import read_result
from tests.pipeline.training.test_loop import make_job

NUM_NODES, CLASSES, EPOCHS = 1000, 4, 30


class _Parameters(BaseModel):
    seed: int = 0


def toy(path: Path) -> GraphStore:
    """Four communities: features that say half of it, and four of five edges within a community."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, NUM_NODES)
    sources = draw.integers(0, NUM_NODES, 4000)
    members = [np.flatnonzero(labels == label) for label in range(CLASSES)]
    own = np.array([draw.choice(members[labels[source]]) for source in sources])
    targets = np.where(draw.random(4000) < 0.8, own, draw.integers(0, NUM_NODES, 4000))
    centres = draw.normal(0, 1, (CLASSES, 16))
    graph = GraphArrays(
        name="toy",
        csr=clean_edges(sources, targets, NUM_NODES)[0],
        features=(centres[labels] + draw.normal(0, 2, (NUM_NODES, 16))).astype(np.float32),
        labels=labels,
        splits=random_splits(labels, num_splits=1, seed=0),
        num_classes=CLASSES,
    )
    return create_store(path, graph, _Parameters())


def test_our_models_are_within_two_points_of_the_best_opponent(tmp_path: Path, local_ray: None) -> None:
    store = toy(tmp_path / "toy")
    scores = {}
    for name in ("mlp", "sign", "gcn", "sage", "vanilla", "expanded", "sparse", "segment"):
        given = {"data.store": store.path, "output": tmp_path, "train.epochs": EPOCHS}
        config = load_config(None, given, preset=default_preset(name))
        opened = open_prepared(config, models=[name])
        job = make_job(vary(config, name, 0, 0, opened), opened, name)
        train_worker(job)
        result = read_result(job.directory)
        assert result is not None
        scores[name] = 100 * result.test_metric
    best = max(scores[name] for name in ("mlp", "sign", "gcn", "sage"))
    ours = {name: scores[name] for name in ("vanilla", "expanded", "sparse", "segment")}
    assert min(ours.values()) >= best - 2, scores
