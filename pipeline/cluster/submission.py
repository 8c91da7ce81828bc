"""Submitting a stage as a Ray job: everything is checked here before code and configuration are uploaded."""

import shlex
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pipeline.cluster.job_api import PROBE_PREFIX, Cluster
from pipeline.config.loading import Config, ConfigError, read_yaml
from pipeline.config.locations import Uri
from pipeline.config.nested_keys import dotted_values
from pipeline.paper.registry import FAMILY
from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import without_password
from pipeline.runtime.provenance import source_revision, user_name
from pipeline.tracking.runs import config_digest

StageName = Literal["preprocess", "train", "predict", "compare", "survey"]

_PACKAGES = ("cocn", "pipeline", "jobs")
CLUSTER_KEYS = ("resources.", "tracking.", "storage.", "output", "data.store", "data.data_root")
_CONFIG_VARIABLE = "COCN_CONFIG"
# Jobs are stopped with Ctrl-C, with time to close runs; Ray's default is a signal that it handles itself.
_STOP_POLITELY = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "30"}
_JUNK = shutil.ignore_patterns("*.md", "__pycache__", "*.pyc", "*.nbi", "*.nbc", ".*", "*.tmp", "records")
# Checks for a path on the cluster, without sending any code of ours.
_PROBE = "import os, sys; sys.exit(0 if os.path.exists(sys.argv[1]) else 3)"
_PROBE_URI = (
    "import sys, pyarrow.fs as fs; files, path = fs.FileSystem.from_uri(sys.argv[1]); "
    "sys.exit(0 if files.get_file_info(path).is_file else 3)"
)
_PROBE_ABSENT = 3
_PROBE_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Submission:
    """A job that the cluster has accepted."""

    id: str
    stage: str
    address: str
    entrypoint: str


def submit(stage: StageName, config: Config, cluster: Cluster, *, upload: bool = True) -> Submission:
    """Submit one stage.

    Args:
        stage: The module of `jobs` that runs.
        config: The resolved configuration; the job gets exactly this one.
        cluster: The cluster to submit to.
        upload: Upload this package's code; otherwise the job runs the version installed on the cluster.

    Raises:
        UserError: If the configuration cannot work on a cluster, or what it reads does not exist. Nothing has
            been uploaded then.
    """
    _check_portable(config)
    _check_inputs(stage, config, cluster)
    entrypoint = shlex.join(["python", "-m", f"jobs.{stage}", f"env:{_CONFIG_VARIABLE}"])
    # Separate from the code, so that jobs share one upload and each node's compiled kernels.
    environment: dict[str, object] = {
        "env_vars": {_CONFIG_VARIABLE: config.model_dump_json(exclude_unset=True), **_STOP_POLITELY}
    }
    cpus, gpus = driver_resources(stage, config)
    with package() if upload else nullcontext() as directory:
        if directory is not None:
            environment["working_dir"] = str(directory)
        name = cluster.submit(
            entrypoint=entrypoint,
            submission_id=f"{stage}-{uuid.uuid4().hex[:12]}",
            runtime_env=environment,
            metadata=describe(stage, config),
            entrypoint_num_cpus=cpus,
            entrypoint_num_gpus=gpus,
        )
    return Submission(name, stage, cluster.address, entrypoint)


def cluster_overrides(path: Path) -> dict[str, object]:
    """The keys of a cluster's file, which may say where and on how much to run, and nothing about science.

    Raises:
        ConfigError: If it holds any other key.
    """
    values = dict(dotted_values(read_yaml(path)))
    for key in values:
        if not key.startswith(CLUSTER_KEYS):
            raise ConfigError(
                f"{path}: Expected keys under {', '.join(CLUSTER_KEYS)} (got '{key}'): science goes to the "
                "other file"
            )
    return values


def _check_portable(config: Config) -> None:
    """Refuse what is only meaningful on this machine, and what must not be sent."""
    paths = {
        "output": config.output,
        "data.store": config.data.store,
        "data.data_root": config.data.data_root,
    }
    for key, path in paths.items():
        if isinstance(path, Path) and not path.is_absolute():
            raise UserError(
                f"Expected '{key}' to be an absolute path that every node of the cluster sees (got '{path}')"
            )
    uri = config.tracking.uri
    if uri is not None and uri != without_password(uri):
        raise UserError(
            "Expected 'tracking.uri' to hold no password (got one): set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD on the cluster's nodes instead"
        )


def _check_inputs(stage: StageName, config: Config, cluster: Cluster) -> None:
    """Check that what the job will read exists on the cluster."""
    data = config.data
    if stage in ("train", "predict") and data.store is not None:
        if not _exists(cluster, data.store / "manifest.json"):
            raise UserError(
                f"Expected 'data.store' to be a store on the cluster (got nothing at '{data.store}'): "
                "cocn submit preprocess creates it"
            )
    elif stage == "preprocess":
        source = Path(data.source)
        for key, path in {"data.data_root": data.data_root, "data.source": source}.items():
            if path is not None and path.is_absolute() and not _exists(cluster, path):
                raise UserError(f"Expected '{key}' to exist on the cluster (got nothing at '{path}')")


def _exists(cluster: Cluster, path: Path | Uri) -> bool:
    """Whether a path, or an object of a storage, exists on the cluster."""
    name = cluster.submit(
        entrypoint=shlex.join(["python", "-c", _PROBE if isinstance(path, Path) else _PROBE_URI, str(path)]),
        submission_id=f"{PROBE_PREFIX}{uuid.uuid4().hex[:12]}",
        metadata={"cocn.stage": "probe"},
    )
    state = cluster.wait(name, _PROBE_TIMEOUT_SECONDS)
    if state.finished:
        cluster.client.delete_job(name)
    if state.status == "SUCCEEDED":
        return True
    if state.exit_code == _PROBE_ABSENT:
        return False
    raise UserError(
        f"Expected the cluster to start a job within {_PROBE_TIMEOUT_SECONDS:.0f} s "
        f"(got {state.status}: {state.message or 'no word'})"
    )


def driver_resources(stage: StageName, config: Config) -> tuple[float, float]:
    """CPUs and GPUs of the driver: a single worker trains inside it, several are separate processes."""
    resources = config.resources
    alone = resources.most_workers == 1 or config.model.name not in FAMILY
    if stage not in ("train", "predict") or not alone:
        return 0.0, 0.0
    return float(resources.cpus_per_worker or 1), float(resources.gpus_per_worker)


def describe(stage: StageName, config: Config) -> dict[str, str]:
    """What the job list shows; contains nothing secret."""
    revision = source_revision()
    known = {
        "cocn.stage": stage,
        "cocn.model": config.model.name if stage in ("train", "predict") else "",
        "cocn.data": config.data.source,
        "cocn.config": config_digest(config),
        "cocn.version": version("cocn"),
        "cocn.commit": revision.commit or "",
        "cocn.user": user_name(),
    }
    return {name: value for name, value in known.items() if value}


def _leave_out(directory: str, names: list[str]) -> set[str]:
    """Skip caches, and links: what they point to may not be our code."""
    return _JUNK(directory, names) | {name for name in names if Path(directory, name).is_symlink()}


@contextmanager
def package() -> Iterator[Path]:
    """A directory with only the three packages."""
    with tempfile.TemporaryDirectory(prefix="cocn-job-") as scratch:
        directory = Path(scratch) / "package"
        directory.mkdir()
        for name in _PACKAGES:
            spec = find_spec(name)
            if spec is None or spec.origin is None:
                raise UserError(f"Expected the package '{name}' to be installed (got none): run make setup")
            shutil.copytree(Path(spec.origin).parent, directory / name, ignore=_leave_out)
        yield directory
