"""Starting a training: where it is stored, which processes run it, and what the terminal shows."""

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.config.loading import Config
from pipeline.config.marks import decisive_settings
from pipeline.models.metrics import chosen_metric
from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords
from pipeline.runtime.progress import Bar, progress
from pipeline.storage.files import text_sha256
from pipeline.storage.object_store import Remote
from pipeline.store.access import open_store
from pipeline.store.arrays import Task
from pipeline.store.graph_store import GraphStore
from pipeline.store.timings import stage_seconds
from pipeline.tracking.runs import STAGE_PREFIX, Earlier, ParentRun, Run, start_child
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.mlflow_model import write_model
from pipeline.training.model_card import CARD, write_card
from pipeline.training.needs import input_digest, resolve_needs
from pipeline.training.ray_train import train_on_ray
from pipeline.training.remote_copy import RUN_FILE, pull, reconcile
from pipeline.training.results import TrainResult, read_epochs, read_now, read_result

logger = logging.getLogger(__name__)

TRAININGS = "trainings"
EVALUATION = "evaluation.json"
_POLL_SECONDS = 0.3


class RunNote(BaseModel):
    """The MLflow run of a training, kept next to its checkpoints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str | None
    """None if the tracker had not answered when the training began."""
    key: str = ""
    """Our own name for the run."""

    def earlier(self) -> Earlier | None:
        """The run to resume, if it can be found."""
        return Earlier(self.run_id, self.key) if self.run_id or self.key else None


def read_note(directory: Path) -> RunNote | None:
    """The run of a training, if it has one."""
    note = directory / RUN_FILE
    return RunNote.model_validate_json(note.read_text()) if note.exists() else None


def training_directory(config: Config, store: GraphStore) -> Path:
    """Directory of a training: the same configuration on the same graph continues in the same place."""
    settings = decisive_settings(config, "inputs", "weights", extends=False)
    digest = text_sha256({"settings": settings, "store": input_digest(store, config)})
    return config.output.absolute() / TRAININGS / f"{store.manifest.name}-{config.model.name}-{digest[:12]}"


def training_mirror(config: Config, name: str) -> Remote | None:
    """Where a training is copied to, if anywhere."""
    if config.storage.uri is None:
        return None
    return Remote(config.storage.uri, config.storage) / TRAININGS / name


def train(
    config: Config,
    store: GraphStore,
    parent: Run | ParentRun,
    *,
    variant: str = "",
    tags: Mapping[str, str] | None = None,
) -> TrainResult:
    """Train one model on one split with one seed; a stopped training continues, a finished one is kept.

    Args:
        config: the resolved configuration.
        store: the graph, with the stages its model needs.
        parent: the run of the command.
        variant: what distinguishes this training from others of the same model, for people.
        tags: further tags of the run.
    """
    needs = resolve_needs(config, store)
    directory = training_directory(config, store)
    directory.mkdir(parents=True, exist_ok=True)
    mirror = training_mirror(config, directory.name)
    if mirror is not None:
        reconcile(directory, mirror)
    found = read_result(directory)
    noted = read_note(directory)
    if found is not None and noted is not None and not may_go_on(found, config.train.time_budget):
        logger.info("%s is already trained; its result is in %s", config.model.name, directory)
        return found
    run = start_child(
        parent,
        config,
        model=config.model.name,
        dataset=compared_as(config, store, needs.task),
        seed=config.train.seed,
        split=config.data.split,
        metric=chosen_metric(
            config.train.metric, store.manifest.num_classes, needs.task, store.manifest.answer
        ),
        variant=variant,
        tags={"cocn.store": store.digest, "cocn.directory": str(directory), **(tags or {})},
        resume=None if noted is None else noted.earlier(),
    )
    with run:
        (directory / RUN_FILE).write_text(RunNote(run_id=run.run_id, key=run.reference.key).model_dump_json())
        seconds = stage_seconds(store, needs.stages)
        run.log(0, {f"{STAGE_PREFIX}{stage}": value for stage, value in seconds.items()})
        describe_data(run, store)
        job = TrainJob(config, store.place, directory, run.reference, mirror)
        job.publish()
        with _follow(job):
            execute(job)
        if mirror is not None:
            pull(mirror, directory)  # rank 0 may have written on another node
        result = read_result(directory)
        if result is None:
            raise UserError(f"Expected a result in '{directory}' (got none): see the messages above")
        run.log_artifact(result.checkpoint, "checkpoint")
        run.log_artifact(write_model(directory, result.checkpoint), "model")
        run.log_text(write_card(config, store, result, task=needs.task), CARD)
        scores = sorted(result.test.items())
        run.log_table(
            {"metric": [name for name, _ in scores], "test": [value for _, value in scores]}, EVALUATION
        )
    return result


def describe_data(run: Run, store: GraphStore) -> None:
    """Record in MLflow what a run is trained on."""
    counts = store.manifest.model_dump(include={"num_nodes", "num_edges", "num_features", "num_classes"})
    place = str(store.place)
    run.log_dataset(store.manifest.name, store.digest[:32], hide_passwords(place), counts)


def compared_as(config: Config, store: GraphStore, task: Task) -> str:
    """The dataset name under which a training is recorded: results are compared within a task and a
    protocol."""
    name = store.manifest.name if task == store.manifest.task else f"{store.manifest.name} {task}s"
    return name if config.data.protocol == "holdout" else f"{name} ({config.data.protocol} protocol)"


def may_go_on(result: TrainResult, time_budget: float | None) -> bool:
    """Whether a training that ran out of time now has more."""
    return result.out_of_time and (time_budget is None or time_budget > result.train_seconds)


def execute(job: TrainJob) -> None:
    """Run a job where it belongs: in this process, or in a group of Ray Train workers."""
    resources, model = job.config.resources, job.config.model
    needs = resolve_needs(job.config, open_store(job.store))
    if needs.reads_whole_graph and resources.most_workers > model.heads:
        raise UserError(
            f"Expected 'resources.workers' to be at most {model.heads}, the heads that '{model.name}' shares "
            f"out (got {resources.workers})"
        )
    if resources.most_workers == 1:
        train_here(job)
    else:
        train_on_ray(job)


def train_here(job: TrainJob) -> None:
    """Train in this process, without Ray's start-up."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(job.config.resources.cpus_per_worker or os.cpu_count() or 1)
    train_worker(job, device=device)


@contextmanager
def _follow(job: TrainJob) -> Iterator[None]:
    """Show the progress of a job while the block runs, whichever process trains."""
    stop = threading.Event()
    with progress(job.config.model.name, job.config.train.epochs, "epochs") as bar:
        view = View(job, bar)

        def watch() -> None:
            while not stop.wait(_POLL_SECONDS):
                view.refresh()

        watcher = threading.Thread(target=watch, name="epochs", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            stop.set()
            watcher.join()
            view.refresh()


class View:
    """What a bar shows of a training: finished epochs, and the step of the current one."""

    def __init__(self, job: TrainJob, bar: Bar) -> None:
        self._directory = job.directory
        self._epochs = job.config.train.epochs
        self._bar = bar
        self._seen = 0
        self._now = read_now(job.directory)

    def refresh(self) -> None:
        """Read what the training wrote and show it."""
        records = read_epochs(self._directory)
        if len(records) > self._seen:
            last = records[-1]
            shown = {"loss": last.train_loss, "val": last.val_metric, "rows/s": last.rows_per_second}
            known = {name: value for name, value in shown.items() if value is not None}
            self._bar.advance(len(records) - self._seen, **known)
            self._seen = len(records)
        now = read_now(self._directory)
        if now is not None and now != self._now and now.steps > 1:
            self._now = now
            left = (self._epochs - now.epoch) * now.steps - now.step
            self._bar.advance(
                0,
                step=f"{now.step}/{now.steps}",
                loss=now.loss,
                **{"rows/s": now.rows_per_second, "left": f"{left / max(now.steps_per_second, 1e-9):.0f}s"},
            )
