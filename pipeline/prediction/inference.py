"""Predictions of a trained model for every node, graph or pair of a store, streamed into a file."""

import functools
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

import cocn
from cocn.modern import BlockGraph
from pipeline.engine.session import ADDRESS
from pipeline.engine.tasks import Handle, Tasks, open_tasks
from pipeline.models.networks import Network, build_model
from pipeline.models.opponents import OPPONENTS, Opponent
from pipeline.models.opponents.perceptrons import RowOpponent
from pipeline.models.tasks import read_outputs
from pipeline.prediction.link_tables import Written, write_link_predictions
from pipeline.prediction.node_tables import Floats, score_parts, scratch_rows, write_parquet
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import progress
from pipeline.segments.loader import SegmentLoader
from pipeline.segments.records import Records, SegmentSource
from pipeline.segments.stage import PARTS, SegmentSummary, stage_name
from pipeline.segments.windows import Segments
from pipeline.storage.object_store import Remote, local_file
from pipeline.store.access import open_store
from pipeline.store.graph_store import GraphStore
from pipeline.training.checkpoint import WEIGHTS, load_weights, read_origin
from pipeline.training.collection_feed import evaluation_batches
from pipeline.training.graph_pool import read_pool
from pipeline.training.inputs import open_graph, part_code, part_of_rows, read_node_table
from pipeline.training.needs import resolve_needs
from pipeline.training.opponent_inputs import read_opponent_graph, read_rows
from pipeline.training.origin import Origin
from pipeline.training.remote_copy import open_checkpoint
from pipeline.training.row_feed import row_batches
from pipeline.training.segment_sources import open_part, sequence_segments

#: Rows per task.
CHUNK_ROWS = 16_384
#: Seconds of work above which Ray's tasks pay for its start.
_PARALLEL_SECONDS = 30.0


@dataclass(frozen=True)
class Prediction:
    """What `cocn predict` wrote."""

    out: Path | Remote
    checkpoint: Path | Remote
    rows: str
    """What a row is: nodes, graphs or pairs."""
    num_rows: int
    num_classes: int
    embedding_channels: int
    seconds: float
    rows_per_second: float
    scores: dict[str, dict[str, float]]
    """Metrics of each part that has labels."""


@dataclass(frozen=True)
class Outputs:
    """The model's output for a batch of nodes or graphs.

    Shapes:
        row: [R]
        probabilities: [R, C] of classes or labels, or values
        embeddings: [R, E], or [R, 0] if they are not requested
    """

    row: NDArray[np.integer]
    probabilities: Floats
    embeddings: Floats


@dataclass(frozen=True)
class _Chunk:
    """Rows of one part, for one task."""

    checkpoint: Path | Remote
    store: Path | Remote
    part: str
    start: int
    stop: int
    embeddings: bool


def predict(
    checkpoint: Path | Remote,
    store: GraphStore,
    out: Path | Remote,
    *,
    embeddings: bool = False,
    other_graph: bool = False,
    parallel: bool | None = None,
) -> Prediction:
    """Predict the class of every node, of every graph of a collection, or the links of pairs.

    Args:
        checkpoint: Directory of a checkpoint, or its place in an object store.
        store: The graph, with the stages that the model reads.
        out: Parquet file; it appears once it is complete.
        embeddings: Also write the input of the last linear map.
        other_graph: Accept a graph that the model was not trained on, as long as its sizes fit.
        parallel: Use Ray; by default if timing the first rows shows that it pays, or in a cluster.

    Raises:
        UserError: if the store does not fit the checkpoint.
    """
    start = time.monotonic()
    origin = read_origin(_local_checkpoint(checkpoint))
    if embeddings:
        require_classes(origin)
    if other_graph:
        origin.require_sizes(store, checkpoint)
    else:
        origin.require_store(store, checkpoint, "; --other-graph predicts on it anyway")
    require_segments(origin, store)
    channels = open_model(checkpoint).out.in_features if embeddings else 0
    with local_file(out) as file:
        if origin.inputs.task == "link":
            written = write_link_predictions(open_model(checkpoint), origin, store, file, _device())
        else:
            answers = answer(checkpoint, origin, store, embeddings, parallel)
            written = _write_classes(answers, origin, store, file, channels)
    seconds = time.monotonic() - start
    return Prediction(
        out=out if isinstance(out, Remote) else out.absolute(),
        checkpoint=checkpoint,
        rows=written.rows,
        num_rows=written.num_rows,
        num_classes=origin.inputs.num_classes,
        embedding_channels=channels,
        seconds=seconds,
        rows_per_second=written.num_rows / seconds,
        scores=written.scores,
    )


def _write_classes(
    answers: Iterable[Outputs], origin: Origin, store: GraphStore, file: Path, channels: int
) -> Written:
    """Write the classes of all nodes or graphs, and embeddings of the given width."""
    kind = "graphs" if store.is_collection else "nodes"
    classes = origin.inputs.num_classes
    with scratch_rows(file, store.num_rows, classes + channels) as rows:
        with progress("predict", store.num_rows, kind) as bar:
            for answer in answers:
                rows[answer.row, :classes] = answer.probabilities
                rows[answer.row, classes:] = answer.embeddings
                bar.advance(answer.row.size)
        parts = part_of_rows(store, origin.config.data.split)
        write_parquet(file, store, parts, rows[:, :classes], rows[:, classes:])
        scores = dict(score_parts(rows[:, :classes], store, parts))
    return Written(kind, store.num_rows, scores)


def require_classes(origin: Origin) -> None:
    """Refuse a link model where classes or embeddings of rows are requested.

    Raises:
        UserError: if it is one.
    """
    if origin.inputs.task == "link":
        raise UserError(
            "Expected a model of nodes or graphs (got a link model): `cocn predict` without --embeddings "
            "scores its pairs"
        )


def require_segments(origin: Origin, store: GraphStore) -> None:
    """Refuse segments whose length or number of heads differs from the model's.

    Raises:
        UserError: if they differ.
    """
    stage = stage_name(origin.config.data.split)
    if not (store.has(stage) and resolve_needs(origin.config, store).reads_shards):
        return
    model, cut = origin.config.model, store.summary(stage, SegmentSummary)
    found = (cut.heads, cut.length)
    wanted = (model.heads, origin.config.segments.length)
    if found != wanted:
        raise UserError(
            f"Expected '{store.place}' to have segments of {wanted[0]} heads and length {wanted[1]} "
            f"(got {found[0]} and {found[1]})"
        )


def answer(
    checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool, parallel: bool | None
) -> Iterator[Outputs]:
    """The model's predictions, every node or graph once, in any order."""
    inputs = origin.inputs
    for some in _run_model(checkpoint, origin, store, embeddings, parallel):
        raw = torch.from_numpy(np.array(some.probabilities))  # those of a Ray task refuse to be written
        yield replace(some, probabilities=read_outputs(raw, inputs.answer, inputs.target_scale).numpy())


def _run_model(
    checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool, parallel: bool | None
) -> Iterator[Outputs]:
    """The model's outputs as they are, every node or graph once, in any order."""
    needs = resolve_needs(origin.config, store)
    if needs.reading == "graphs":
        yield from _answer_collection(checkpoint, origin, store, embeddings)
        return
    if origin.config.model.name in OPPONENTS:
        yield from _answer_opponent(checkpoint, origin, store, embeddings)
        return
    if needs.reading != "segments":
        yield _answer_graph(checkpoint, origin, store, embeddings)
        return
    segments = _cut_segments(checkpoint, origin, store)
    chunks = list(_plan_chunks(checkpoint, origin, store, embeddings))
    first = time.monotonic()
    yield _answer_chunk(chunks[0], segments)
    if parallel is None:
        parallel = _does_ray_pay((time.monotonic() - first) * (len(chunks) - 1))
    with open_tasks(parallel) as tasks:
        shared = tasks.put(segments)
        limit = 2 * (os.cpu_count() or 1) if parallel else 1
        yield from _run_chunks(tasks, chunks[1:], shared, limit)


def _does_ray_pay(seconds: float) -> bool:
    """Whether work that takes this long here should be distributed."""
    if torch.cuda.is_available():
        return False
    return seconds > _PARALLEL_SECONDS and (bool(os.environ.get(ADDRESS)) or (os.cpu_count() or 1) > 1)


def _run_chunks(tasks: Tasks, chunks: Iterable[_Chunk], segments: Handle, limit: int) -> Iterator[Outputs]:
    """Run chunks in order, with at most `limit` of them waiting to be read."""
    waiting: deque[Handle] = deque()
    for chunk in chunks:
        waiting.append(tasks.submit(_answer_chunk, chunk, segments))
        if len(waiting) >= limit:
            yield tasks.get(waiting.popleft())
    while waiting:
        yield tasks.get(waiting.popleft())


def _plan_chunks(
    checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool
) -> Iterator[_Chunk]:
    """Cut the rows of every non-empty part into chunks."""
    parts = part_of_rows(store, origin.config.data.split)
    for part in PARTS:
        rows = int((parts == part_code(part)).sum())
        for start in range(0, rows, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, rows)
            yield _Chunk(checkpoint, store.place, part, start, stop, embeddings)


def _cut_segments(checkpoint: Path | Remote, origin: Origin, store: GraphStore) -> Segments | None:
    """Segments by the model's learned positions; None if the store has them."""
    needs = resolve_needs(origin.config, store)
    if needs.reads_shards:
        return None
    regression = open_model(checkpoint).positions
    if regression is None:
        raise ValueError("Expected a model that learns positions (got one that does not)")
    table = read_node_table(store, needs)
    return sequence_segments(store, origin.config, table, regression, regression.state_dict())


def _answer_chunk(chunk: _Chunk, segments: Segments | None) -> Outputs:
    """Run the model on the rows of a chunk, batch by batch."""
    model = cast(cocn.SegmentCoCN, open_model(chunk.checkpoint))
    store, config = open_store(chunk.store), read_origin(_local_checkpoint(chunk.checkpoint)).config
    table = read_node_table(store, resolve_needs(config, store))
    source = open_part(store, config.data.split, chunk.part, table, segments)
    rows = _RowRange(source, chunk.start, chunk.stop)
    loader = SegmentLoader(rows, config.train.batch_size, shuffle=False, device=_device())
    nodes, outputs = [], []
    with torch.inference_mode():
        for batch in loader:
            outputs.append(_output(model, model.embed_segments(batch), chunk.embeddings))
            nodes.append(batch.node.cpu().numpy())
    probabilities, embeddings = (np.concatenate(columns) for columns in zip(*outputs, strict=True))
    return Outputs(np.concatenate(nodes), probabilities, embeddings)


def _answer_graph(checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool) -> Outputs:
    """Run a full-graph model once."""
    model = open_model(checkpoint)
    with torch.inference_mode():
        graph = open_graph(store, origin.config).to(_device())
        probabilities, embedded = _output(model, _embed(model, graph), embeddings)
    return Outputs(np.arange(store.num_nodes), probabilities, embedded)


def _answer_opponent(
    checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool
) -> Iterator[Outputs]:
    """Run an opponent on rows, or once on the whole graph."""
    model = cast(Opponent, open_model(checkpoint))
    with torch.inference_mode():
        if isinstance(model, RowOpponent):
            table = read_rows(store, model)
            for rows, batch in row_batches(table, np.arange(store.num_nodes), _device()):
                yield Outputs(rows, *_output(model, model.embed(batch), embeddings))
        else:
            graph = read_opponent_graph(store, _device())
            yield Outputs(np.arange(store.num_nodes), *_output(model, model.embed(graph), embeddings))


def _answer_collection(
    checkpoint: Path | Remote, origin: Origin, store: GraphStore, embeddings: bool
) -> Iterator[Outputs]:
    """Run a model on batches of graphs of similar size."""
    model = open_model(checkpoint)
    pool = read_pool(store, origin.config, origin.inputs.task, _device())
    parts = part_of_rows(store, origin.config.data.split)
    with torch.inference_mode():
        # One part at a time, as in training: in a different batch the last bit may separate tied nodes.
        for part in PARTS:
            chosen = np.flatnonzero(parts == part_code(part))
            for graphs, batch in evaluation_batches(pool, torch.from_numpy(chosen).to(_device())):
                yield Outputs(graphs.cpu().numpy(), *_output(model, _embed(model, batch), embeddings))


@functools.lru_cache(maxsize=4)
def _local_checkpoint(place: Path | Remote) -> Path:
    """A checkpoint on this machine; one in an object store is downloaded once per process, since what a name
    refers to never changes.
    """
    return place if isinstance(place, Path) else open_checkpoint(place)


def open_model(place: Path | Remote) -> Network:
    """The model of a checkpoint, ready to predict."""
    checkpoint = _local_checkpoint(place)
    return _read_model(checkpoint, (checkpoint / WEIGHTS).stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _read_model(checkpoint: Path, modified: int) -> Network:
    # Cached, so that a process that runs many tasks reads the weights once.
    origin = read_origin(checkpoint)
    model = build_model(origin.config.model, origin.config.segments, origin.inputs)
    load_weights(checkpoint, model)
    return model.to(_device()).eval()


class _RowRange:
    """Consecutive rows of a source."""

    def __init__(self, source: SegmentSource, start: int, stop: int) -> None:
        self.table = source.table
        self.num_rows = stop - start
        self._source = source
        self._start = start

    def take(self, rows: NDArray[np.int64]) -> Records:
        return self._source.take(rows + self._start)


def _embed(model: Network, graph: cocn.GraphBatch | BlockGraph) -> torch.Tensor:
    embedded: torch.Tensor = model.embed(graph)  # type: ignore[arg-type, operator]
    return embedded


def _output(model: Network, embedded: torch.Tensor, keep: bool) -> tuple[Floats, Floats]:
    outputs = model.out(embedded).float().cpu().numpy()
    kept = embedded if keep else embedded[:, :0]
    return outputs, kept.float().cpu().numpy()


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
