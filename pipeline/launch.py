"""Starting a training: where it lives on disk, which processes run it, and what the terminal shows."""

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.cluster import ray_session
from pipeline.config import Config
from pipeline.errors import UserError
from pipeline.evaluate import chosen_metric
from pipeline.files import text_sha256
from pipeline.inputs import input_digest, input_stages
from pipeline.mirror import RUN_FILE, pull, reconcile
from pipeline.modelling import resolve_task, streams
from pipeline.progress import Bar, progress
from pipeline.provenance import stage_seconds
from pipeline.remote import Remote
from pipeline.results import TrainResult, read_epochs, read_now, read_result
from pipeline.runs import Earlier, Run, start_child
from pipeline.serving import write_model
from pipeline.store import GraphStore
from pipeline.training import TrainJob, memory_hint, train_worker
from pipeline.trainings import STAGE_PREFIX

logger = logging.getLogger(__name__)

TRAININGS = "trainings"
#: How often a group of workers is started again after one of them died.
MAX_FAILURES = 3
POLL_SECONDS = 0.3


class RunNote(BaseModel):
    """The MLflow run that a training belongs to, kept beside its checkpoints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str | None
    """None if the tracker had not answered when the training began."""
    key: str = ""
    """Our own name for the run."""

    def earlier(self) -> Earlier | None:
        """The run to resume, if it can be found again."""
        return Earlier(self.run_id, self.key) if self.run_id or self.key else None


def training_directory(config: Config, store: GraphStore) -> Path:
    """Directory of a training: the same configuration on the same graph continues in the same place."""
    decisive = {
        "model": config.model.model_dump(mode="json"),
        "train": config.train.model_dump(mode="json", exclude={"checkpoint_seconds", "time_budget"}),
        "segments": config.segments.model_dump(mode="json"),
        "order": config.positions.order,
        "split": config.data.split,
        "store": input_digest(store, config),
    }
    if store.is_collection or config.data.task != "auto":
        decisive |= {"task": config.data.task, "protocol": config.data.protocol}
    name = f"{store.manifest.name}-{config.model.name}-{text_sha256(decisive)[:12]}"
    return config.output.absolute() / TRAININGS / name


def training_mirror(config: Config, name: str) -> Remote | None:
    """Where a training is copied to, if anywhere."""
    if config.storage.uri is None:
        return None
    return Remote(config.storage.uri, config.storage) / TRAININGS / name


def train(
    config: Config,
    store: GraphStore,
    parent: Run,
    *,
    variant: str = "",
    tags: Mapping[str, str] | None = None,
) -> TrainResult:
    """Train one model on one split with one seed; a stopped training goes on, a finished one is kept.

    Args:
        config: the resolved configuration.
        store: the graph, with the stages its model needs.
        parent: the run of the command.
        variant: what sets this training apart from others of the same model, for people.
        tags: further tags of the run.
    """
    task = resolve_task(config, store)
    if config.data.protocol != "holdout":
        variant = f"{variant} ({config.data.protocol} protocol)".strip()
    directory = training_directory(config, store)
    directory.mkdir(parents=True, exist_ok=True)
    mirror = training_mirror(config, directory.name)
    if mirror is not None:
        reconcile(directory, mirror)
    found = read_result(directory)
    note = directory / RUN_FILE
    noted = RunNote.model_validate_json(note.read_text()) if note.exists() else None
    if found is not None and noted is not None and not may_go_on(found, config.train.time_budget):
        logger.info("%s was trained before; its result is in %s", config.model.name, directory)
        return found
    run = start_child(
        parent,
        config,
        model=config.model.name,
        dataset=store.manifest.name,
        seed=config.train.seed,
        split=config.data.split,
        metric=chosen_metric(config.train.metric, store.manifest.num_classes, task),
        variant=variant,
        tags={"cocn.store": store.digest, "cocn.directory": str(directory), **(tags or {})},
        resume=None if noted is None else noted.earlier(),
    )
    with run:
        note.write_text(RunNote(run_id=run.run_id, key=run.reference.key).model_dump_json())
        seconds = stage_seconds(store, input_stages(store, config))
        run.log(0, {f"{STAGE_PREFIX}{stage}": value for stage, value in seconds.items()})
        job = TrainJob(config, store.place, directory, run.reference, mirror)
        job.publish()
        with follow(job):
            execute(job)
        if mirror is not None:
            pull(mirror, directory)  # rank 0 may have written on another node
        result = read_result(directory)
        if result is None:
            raise UserError(f"Expected a result in '{directory}' (got none): see the messages above")
        run.log_artifact(result.checkpoint, "checkpoint")
        run.log_artifact(write_model(directory, result.checkpoint), "model")
    return result


def may_go_on(result: TrainResult, time_budget: float | None) -> bool:
    """Whether a training that ran out of time has more of it now."""
    return result.out_of_time and (time_budget is None or time_budget > result.train_seconds)


def execute(job: TrainJob) -> None:
    """Run a job where it belongs: in this process, or in a group of Ray Train workers."""
    resources, model = job.config.resources, job.config.model
    by_heads = not (streams(model) or GraphStore.open(job.store).is_collection)
    if by_heads and resources.workers > model.heads:
        raise UserError(
            f"Expected 'resources.workers' to be at most {model.heads}, the heads that '{model.name}' shares "
            f"out (got {resources.workers})"
        )
    if resources.workers == 1:
        train_here(job)
    else:
        train_on_ray(job)


def train_here(job: TrainJob) -> None:
    """Train in this process, without Ray's start-up."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(job.config.resources.cpus_per_worker or os.cpu_count() or 1)
    train_worker(job, device=device)


def train_on_ray(job: TrainJob) -> None:
    """Train in a group of workers with DistributedDataParallel; gloo on CPUs, NCCL on GPUs.

    Raises:
        UserError: what a worker found wrong, or what its death says about memory.
    """
    # The loop keeps its own checkpoints, so nothing is reported to the controller but the end.
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    resources = job.config.resources
    cpus = resources.cpus_per_worker or max((os.cpu_count() or 1) // resources.workers, 1)
    local_cpus = max(os.cpu_count() or 1, cpus * resources.workers)
    attempt = uuid.uuid4().hex[:8]
    with ray_session(local_cpus):
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
        from ray.train.v2.api.exceptions import TrainingFailedError

        per_worker = {"CPU": float(cpus)}
        if resources.gpus_per_worker:
            per_worker["GPU"] = float(resources.gpus_per_worker)
        trainer = TorchTrainer(
            train_loop_per_worker=ray_worker,
            train_loop_config={"job": job, "threads": cpus, "attempt": attempt},
            scaling_config=ScalingConfig(
                num_workers=resources.workers,
                use_gpu=resources.gpus_per_worker > 0,
                resources_per_worker=per_worker,
            ),
            torch_config=TorchConfig(backend="nccl" if resources.gpus_per_worker else "gloo"),
            run_config=RunConfig(
                name=f"{job.directory.name}-{attempt}",
                storage_path=str(job.directory.parent / ".ray"),
                failure_config=FailureConfig(max_failures=MAX_FAILURES),
            ),
        )
        try:
            trainer.fit()
        except TrainingFailedError as error:
            raise UserError(explain_failure(job, error)) from error
    problem = failure_note(job, attempt)
    if problem.exists():
        message = problem.read_text(encoding="utf-8")
        problem.unlink()
        raise UserError(message)


def ray_worker(settings: Mapping[str, object]) -> None:
    """One rank of a group of Ray Train workers."""
    import ray.train
    import ray.train.torch
    import torch

    job, threads, attempt = settings["job"], settings["threads"], settings["attempt"]
    if not isinstance(job, TrainJob) or not isinstance(threads, int):
        raise TypeError(f"Expected a job and a number of threads (got {type(job)}, {type(threads)})")
    note = failure_note(job, str(attempt))
    if note.exists():
        # Ray starts the group again whatever ended it; what one rank found wrong would be wrong again.
        return
    torch.set_num_threads(threads)
    context = ray.train.get_context()
    try:
        train_worker(job, context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    except UserError as error:
        note.write_text(str(error), encoding="utf-8")
        raise


def failure_note(job: TrainJob, attempt: str) -> Path:
    """Where a worker tells the driver, in one line, what no retry would mend."""
    return job.directory / f".failure-{attempt}"


def explain_failure(job: TrainJob, error: Exception) -> str:
    """One line on why the workers gave up."""
    text = str(error)
    if "OutOfMemory" in text or "out of memory" in text.lower() or "memory pressure" in text:
        return memory_hint(job.config)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (
        f"Expected the workers to finish (got, after {MAX_FAILURES} restarts, "
        f"{lines[-1] if lines else type(error).__name__}); the same command goes on from the last checkpoint"
    )


@contextmanager
def follow(job: TrainJob) -> Iterator[None]:
    """Show the progress of a job while the block runs, whichever process trains."""
    stop = threading.Event()
    with progress(job.config.model.name, job.config.train.epochs, "epochs") as bar:
        view = View(job, bar)

        def watch() -> None:
            while not stop.wait(POLL_SECONDS):
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
    """What a bar shows of a training: epochs that are done, and the step of the one that runs."""

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
