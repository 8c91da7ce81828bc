"""A look at a cluster from inside: one small task on every node, and what their results mean.

`survey_cluster` runs as a job on the cluster; `_judge` turns its result into checks, outside.
"""

import os
import platform
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pipeline.cluster.doctor import Check, Report, Status, check_tracking
from pipeline.cluster.job_api import Cluster, admits_strangers
from pipeline.cluster.submission import submit
from pipeline.config.loading import Config
from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import library_versions
from pipeline.storage.object_store import Remote

_TASK_TIMEOUT_SECONDS = 120.0
_JOB_TIMEOUT_SECONDS = 300.0
_MARKER = ".cocn-survey"
#: How long a node keeps trying to reach the object store.
_STORAGE_SECONDS = 10.0


class NodeReport(BaseModel):
    """What one node reports about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    versions: dict[str, str]
    gpus_promised: int
    """GPUs that Ray offers on this node."""
    gpus_found: int
    """GPUs that the driver reports."""
    torch_has_cuda: bool
    sees_output: bool
    """Whether it found the file that the driver had written."""
    write_problem: str = ""
    """Why it could not write there; empty if it could."""


class Survey(BaseModel):
    """What a job found on a cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[NodeReport, ...]
    output: str
    """The directory, or the place in an object store, that all nodes must share."""
    tracking: Status
    """State of the tracking store as seen from the cluster."""
    tracking_detail: str
    open_addresses: tuple[str, ...]
    """Addresses beyond loopback where the dashboard answers without a token."""


def survey_cluster(config: Config) -> Survey:
    """Survey every node; runs inside a job."""
    from pipeline.engine.session import ray_session

    storage = config.storage.model_copy(update={"retry_seconds": _STORAGE_SECONDS})
    shared = config.output if config.storage.uri is None else Remote(config.storage.uri, storage)
    marker = shared / f"{_MARKER}-{uuid.uuid4().hex}"
    _leave(marker)
    if config.tracking.uri is not None:
        os.environ["MLFLOW_TRACKING_URI"] = config.tracking.uri
    tracking = check_tracking(config.output)
    try:
        with ray_session():
            nodes, addresses = _ask_nodes(shared, marker.name)
    finally:
        _remove(marker)
    return Survey(
        nodes=tuple(nodes),
        output=str(shared),
        tracking=tracking.status,
        tracking_detail=tracking.detail,
        open_addresses=tuple(address for address in addresses if admits_strangers(address)),
    )


def _leave(marker: Path | Remote) -> None:
    if isinstance(marker, Remote):
        marker.write(b"written by a survey")
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text("written by a survey", encoding="utf-8")


def _remove(marker: Path | Remote) -> None:
    if isinstance(marker, Remote):
        marker.delete()
    else:
        marker.unlink(missing_ok=True)


def _ask_nodes(shared: Path | Remote, marker: str) -> tuple[list[NodeReport], list[str]]:
    import ray
    from ray._private.worker import get_dashboard_url
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    answers = []
    for node in alive:
        here: Any = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(num_cpus=0, scheduling_strategy=here)(_report_node)
        promised = int(node["Resources"].get("GPU", 0))
        answers.append(task.remote(f"{node['NodeName']} {node['NodeID'][:6]}", promised, shared, marker))
    reports: list[NodeReport] = ray.get(answers, timeout=_TASK_TIMEOUT_SECONDS)
    port = str(get_dashboard_url() or "").rpartition(":")[2]  # type: ignore[no-untyped-call]
    hosts = {node["NodeManagerAddress"] for node in alive} | _own_addresses()
    outside = sorted(host for host in hosts if not host.startswith("127.") and host != "::1")
    return reports, [f"http://{host}:{port}" for host in outside] if port else []


def _report_node(node: str, gpus_promised: int, shared: Path | Remote, name: str) -> NodeReport:
    """What a task finds on its node."""
    import torch

    marker, own = shared / name, shared / f"{name}-{uuid.uuid4().hex}"
    sees, problem = False, ""
    try:
        sees = marker.size() is not None if isinstance(marker, Remote) else marker.is_file()
        _leave(own)
        _remove(own)
    except OSError as error:
        problem = error.strerror or str(error)
    except UserError as error:
        problem = str(error)
    return NodeReport(
        name=node,
        versions={"python": platform.python_version(), **library_versions()},
        gpus_promised=gpus_promised,
        gpus_found=_count_gpus(),
        torch_has_cuda=torch.version.cuda is not None,
        sees_output=sees,
        write_problem=problem,
    )


def _count_gpus() -> int:
    """GPUs that NVIDIA's tool lists; Ray hides them from tasks that request none, so torch cannot tell."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def examine_cluster(cluster: Cluster, config: Config) -> Report:
    """Survey a cluster with a job and judge the result.

    Args:
        cluster: The cluster.
        config: Its `storage.uri`, or else its `output`, is where every node must be able to write; its
            `tracking` is what they must reach.
    """
    job = submit("survey", config, cluster).id
    state = cluster.wait(job, _JOB_TIMEOUT_SECONDS)
    lines = cluster.logs(job).strip().splitlines()
    reached = Check("cluster", "ok", f"Ray {cluster.ray_version} at {cluster.address} runs jobs")
    if state.status != "SUCCEEDED" or not lines:
        reason = lines[-1] if lines else state.message
        fix = f"cocn jobs logs {job} shows more"
        return Report(
            "problem", (Check("cluster", "problem", f"a job ends as {state.status}: {reason}", fix),)
        )
    checks = (reached, *_judge(Survey.model_validate_json(lines[-1]), cluster))
    return Report(_worst_status(checks), checks)


def _worst_status(checks: tuple[Check, ...]) -> Status:
    """The status of the worst check."""
    return max((check.status for check in checks), key=("ok", "warning", "problem").index)


def _judge(survey: Survey, cluster: Cluster) -> tuple[Check, ...]:
    """The checks of a cluster that has been surveyed."""
    return (
        check_authentication(admits_strangers(cluster.address), survey.open_addresses, cluster.address),
        check_versions(survey.nodes, {"python": platform.python_version(), **library_versions()}),
        check_gpus(survey.nodes),
        check_storage(survey.nodes, survey.output),
        Check("mlflow", survey.tracking, f"from the cluster: {survey.tracking_detail}"),
    )


def check_authentication(strangers: bool, open_addresses: tuple[str, ...], address: str) -> Check:
    fix = "start Ray with RAY_AUTH_MODE=token and a token on every node"
    if open_addresses:
        detail = (
            f"{', '.join(open_addresses)} answers without a token: anyone who reaches it can run commands"
        )
        return Check("authentication", "problem", detail, fix)
    if strangers:
        return Check("authentication", "warning", f"{address} answers without a token", fix)
    return Check("authentication", "ok", "the job API asks for a token")


def check_versions(nodes: tuple[NodeReport, ...], here: Mapping[str, str]) -> Check:
    """Versions affect results and whether processes understand each other, so they must be the same."""
    names = sorted({name for node in nodes for name in node.versions} | set(here))
    differences = []
    for name in names:
        found = {node.versions.get(name, "missing") for node in nodes}
        if len(found) > 1:
            differences.append(f"{name} {', '.join(sorted(found))}")
        elif found != {here.get(name, "missing")}:
            differences.append(f"{name} {found.pop()} there, {here.get(name, 'missing')} here")
    if differences:
        fix = "build one image with constraints.txt and use it on all nodes"
        return Check("versions", "problem", "; ".join(differences), fix)
    return Check("versions", "ok", f"the same on {len(nodes)} nodes and here")


def check_gpus(nodes: tuple[NodeReport, ...]) -> Check:
    short = [node.name for node in nodes if node.gpus_found < node.gpus_promised]
    if short:
        fix = "install NVIDIA's driver and container toolkit there"
        return Check("gpus", "problem", f"Ray promises more than {', '.join(short)} has", fix)
    blind = [node.name for node in nodes if node.gpus_found and not node.torch_has_cuda]
    if blind:
        fix = "use the image that was built with TORCH_INDEX for CUDA"
        return Check("gpus", "problem", f"torch is a CPU build on {', '.join(blind)}", fix)
    idle = sum(node.gpus_found - node.gpus_promised for node in nodes)
    if idle:
        return Check("gpus", "warning", f"Ray does not offer {idle} GPUs", "start Ray with --num-gpus")
    return Check("gpus", "ok", f"{sum(node.gpus_found for node in nodes)} on {len(nodes)} nodes")


def check_storage(nodes: tuple[NodeReport, ...], output: str) -> Check:
    fix = "mount storage that all nodes share and name it with --output, or a bucket with --storage"
    apart = [node.name for node in nodes if not (node.sees_output or node.write_problem)]
    if apart:
        return Check("storage", "problem", f"{', '.join(apart)} does not see {output}", fix)
    refused = [f"{node.name} ({node.write_problem})" for node in nodes if node.write_problem]
    if refused:
        return Check("storage", "problem", f"cannot write to {output}: {', '.join(refused)}", fix)
    return Check("storage", "ok", f"{output} is shared and writable on {len(nodes)} nodes")


def _own_addresses() -> set[str]:
    """Addresses under which others may know this machine."""
    import psutil

    interfaces = psutil.net_if_addrs().values()
    return {entry.address for entries in interfaces for entry in entries if entry.family == socket.AF_INET}
