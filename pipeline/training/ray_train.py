"""A training in a group of Ray Train workers: the requested number, or as many as there is room for."""

import os
import signal
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pipeline.engine.session import ray_session
from pipeline.runtime.allocator import allocator_environment
from pipeline.runtime.errors import UserError
from pipeline.training.job import TrainJob
from pipeline.training.loop import train_worker
from pipeline.training.memory_hint import memory_hint

#: How many times a group of workers is restarted after one of them died.
_MAX_FAILURES = 3
_RAY_FILES = ".ray"


def train_on_ray(job: TrainJob) -> None:
    """Train in a group of workers with DistributedDataParallel; gloo on CPUs, NCCL on GPUs.

    A range of workers starts with as many as the cluster has room for. When a node is lost, the group
    continues with fewer workers, and with more when there is room again, each time from the last checkpoint.

    Raises:
        UserError: what a worker reported, or what its death says about memory.
    """
    # The loop keeps its own checkpoints, so only the end is reported to the controller.
    os.environ.setdefault("RAY_TRAIN_ENABLE_PRINT_PATCH", "0")
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.5")
    resources = job.config.resources
    least, most = resources.least_workers, resources.most_workers
    cpus = resources.cpus_per_worker or max((os.cpu_count() or 1) // most, 1)
    local_cpus = max(os.cpu_count() or 1, cpus * least)
    attempt = uuid.uuid4().hex[:8]
    with ray_session(local_cpus):
        from ray.train import FailureConfig, RunConfig
        from ray.train.torch import TorchConfig, TorchTrainer
        from ray.train.v2.api.config import ScalingConfig
        from ray.train.v2.api.exceptions import TrainingFailedError

        per_worker = {"CPU": float(cpus)}
        if resources.gpus_per_worker:
            per_worker["GPU"] = float(resources.gpus_per_worker)
        place, files = _ray_storage(job)
        trainer = TorchTrainer(
            train_loop_per_worker=ray_worker,
            train_loop_config={"job": job, "threads": cpus, "attempt": attempt},
            scaling_config=ScalingConfig(
                num_workers=most if least == most else (least, most),
                elastic_resize_monitor_interval_s=resources.resize_seconds,
                use_gpu=resources.gpus_per_worker > 0,
                resources_per_worker=per_worker,
            ),
            torch_config=TorchConfig(backend="nccl" if resources.gpus_per_worker else "gloo"),
            run_config=RunConfig(  # type: ignore[call-arg]  # annotated as the class of V1
                name=f"{job.directory.name}-{attempt}",
                storage_path=place,
                storage_filesystem=files,
                failure_config=FailureConfig(max_failures=_MAX_FAILURES),
                worker_runtime_env={"env_vars": allocator_environment()},
            ),
        )
        try:
            with _interrupts_kept():
                trainer.fit()
        except TrainingFailedError as error:
            raise UserError(explain_failure(job, error)) from error
    problem = read_failure(job, attempt)
    if problem is not None:
        failure_note(job, attempt).unlink(missing_ok=True)
        raise UserError(problem)


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Restore the usual meaning of Ctrl-C.

    Ray Train takes it over to end its workers, exits with code 0 or 1, and does not give it back.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if error.code not in (0, 1):  # from another signal
            raise
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _ray_storage(job: TrainJob) -> tuple[str, object | None]:
    """Where Ray keeps its own records of the group, visible to every node: a path and a file system."""
    if job.mirror is None:
        return str(job.directory.parent / _RAY_FILES), None
    files, path = (job.mirror / _RAY_FILES).filesystem()
    return path, files


def ray_worker(settings: Mapping[str, object]) -> None:
    """One rank of a group of Ray Train workers."""
    import ray.train
    import ray.train.torch
    import torch

    job, threads, attempt = settings["job"], settings["threads"], str(settings["attempt"])
    if not isinstance(job, TrainJob) or not isinstance(threads, int):
        raise TypeError(f"Expected a job and a number of threads (got {type(job)}, {type(threads)})")
    if read_failure(job, attempt) is not None:
        # Ray restarts the group whatever ended it, but an error that one rank reported would occur again.
        return
    torch.set_num_threads(threads)
    context = ray.train.get_context()
    try:
        train_worker(job, context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    except UserError as error:
        leave_failure(job, attempt, str(error))
        raise


def failure_note(job: TrainJob, attempt: str) -> Path:
    """Where a worker reports to the driver, in one line, an error that no retry would fix."""
    return job.directory / f".failure-{attempt}"


def leave_failure(job: TrainJob, attempt: str, message: str) -> None:
    """Report an error to the driver, and to the group that Ray starts next."""
    failure_note(job, attempt).write_text(message, encoding="utf-8")
    if job.mirror is not None:
        with suppress(UserError):  # unreachable storage may be the very cause
            (job.mirror / failure_note(job, attempt).name).write(message.encode())


def read_failure(job: TrainJob, attempt: str) -> str | None:
    """The error that a worker reported, on this node or another."""
    note = failure_note(job, attempt)
    if note.exists():
        return note.read_text(encoding="utf-8")
    text = None if job.mirror is None else (job.mirror / note.name).read()
    return None if text is None else text.decode()


def explain_failure(job: TrainJob, error: Exception) -> str:
    """One line on why the workers gave up."""
    text = str(error)
    if "OutOfMemory" in text or "out of memory" in text.lower() or "memory pressure" in text:
        return memory_hint(job.config)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (
        f"Expected the workers to finish (got, after {_MAX_FAILURES} restarts, "
        f"{lines[-1] if lines else type(error).__name__}); "
        "the same command continues from the last checkpoint"
    )
