"""Cluster files: valid to the last field, secured, and consistent with the package."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from pipeline.cluster.submission import CLUSTER_KEYS, cluster_overrides
from pipeline.config.loading import load_config, read_yaml
from pipeline.config.nested_keys import dotted_values

ROOT = Path(__file__).resolve().parents[2]
INFRA = ROOT / "infra"
MANIFESTS = (
    "namespace.yaml",
    "mlflow.yaml",
    "ray-cluster.yaml",
    "ray-job.preprocess.yaml",
    "ray-job.train.yaml",
)
CONFIGURATION = [INFRA / "model.yaml", INFRA / "cluster.yaml"]
SCHEMAS = Path(os.environ.get("COCN_SCHEMAS", ROOT.parent / "shared" / "schemas"))
CRDS = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.M)[1]  # type: ignore[index]
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((INFRA / name).read_text(encoding="utf-8")))


def resources_of(kind: str) -> list[dict[str, Any]]:
    return [document for name in MANIFESTS for document in documents(name) if document["kind"] == kind]


@cache
def schema_of(kind: str) -> dict[str, Any]:
    """The CRD's schema, with every object closed to fields that it does not name."""
    path = SCHEMAS / CRDS[kind]
    if not path.is_file():
        pytest.skip(f"no {path.name} in {SCHEMAS}: COCN_SCHEMAS names the directory with KubeRay's CRDs")
    crd = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    version = next(version for version in crd["spec"]["versions"] if version["name"] == "v1")
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    # Kubernetes itself checks metadata: the CRD leaves it open.
    schema["properties"]["metadata"] = {
        "properties": {name: {} for name in ("name", "namespace", "labels", "annotations")}
    }
    close(schema)
    return schema


def close(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            close(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "additionalProperties" not in schema:
            schema["additionalProperties"] = False
        for item in schema.values():
            close(item)


def problems(document: dict[str, Any]) -> list[str]:
    errors = Draft7Validator(schema_of(document["kind"])).iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]


def ray_clusters() -> Iterator[tuple[str, dict[str, Any]]]:
    yield from ((d["metadata"]["name"], d["spec"]) for d in resources_of("RayCluster"))
    yield from ((d["metadata"]["name"], d["spec"]["rayClusterSpec"]) for d in resources_of("RayJob"))


def pod_templates() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, cluster in ray_clusters():
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            yield f"{name}/{group.get('groupName', 'head')}", group["template"]
    for job in resources_of("RayJob"):
        yield f"{job['metadata']['name']}/submitter", job["spec"]["submitterPodTemplate"]
    for kind in ("Deployment", "StatefulSet"):
        yield from ((d["metadata"]["name"], d["spec"]["template"]) for d in resources_of(kind))


@pytest.mark.parametrize("kind", CRDS)
def test_ray_manifests_have_no_field_that_kuberay_does_not_know(kind: str) -> None:
    found = resources_of(kind)
    assert found
    for document in found:
        assert problems(document) == []


def test_a_mistyped_field_is_found() -> None:
    document = documents("ray-cluster.yaml")[0]
    document["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    assert problems(document) != []


def test_every_pod_is_limited_and_has_no_more_rights_than_it_needs() -> None:
    found = dict(pod_templates())
    assert len(found) == 11
    for name, template in found.items():
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in template["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys(), name


def test_ray_asks_for_a_token_and_has_the_packages_version() -> None:
    for name, cluster in ray_clusters():
        assert cluster["authOptions"] == {"mode": "token", "secretName": "ray-auth"}, name
        assert cluster["rayVersion"] == PINS["ray"], name


def test_images_carry_the_packages_version() -> None:
    images = {c["image"] for _, template in pod_templates() for c in template["spec"]["containers"]}
    own = {image for image in images if image.startswith("cocn")}
    assert own == {f"cocn:{VERSION}-cpu", f"cocn:{VERSION}-cuda", f"cocn-mlflow:{VERSION}"}
    assert all(":" in image and not image.endswith(":latest") for image in images)
    text = (INFRA / "Dockerfile").read_text() + (INFRA / "README.md").read_text()
    assert all(image in text for image in own)
    assert documents("ray-launcher.yaml")[0]["docker"]["image"] in own


@pytest.mark.parametrize("stage", ["preprocess", "train"])
def test_entrypoints_exist_and_read_the_mounted_configuration(stage: str) -> None:
    job = documents(f"ray-job.{stage}.yaml")[0]["spec"]
    python, flag, module, *files = job["entrypoint"].split()
    assert (python, flag, module) == ("python", "-m", f"jobs.{stage}")
    assert util.find_spec(module) is not None
    head = job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]}
    assert [Path(file) for file in files] == [
        Path(mounts["configuration"]) / path.name for path in CONFIGURATION
    ]
    run = load_config(CONFIGURATION)
    assert str(run.output).startswith(mounts["shared"])
    assert str(run.data.store).startswith(mounts["shared"])


def test_the_workers_of_the_configuration_fit_the_gpu_nodes() -> None:
    needed = load_config(CONFIGURATION).resources
    groups = documents("ray-job.train.yaml")[0]["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    places = 0
    for group in groups:
        limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
        gpus, cpus = int(limits["nvidia.com/gpu"]), int(limits["cpu"])
        assert gpus > 1
        places += group["replicas"] * min(
            int(gpus / needed.gpus_per_worker), cpus // (needed.cpus_per_worker or 1)
        )
    assert places == needed.most_workers


def test_the_files_of_model_and_cluster_are_apart() -> None:
    model, cluster = (set(dotted_values(read_yaml(path))) for path in CONFIGURATION)
    assert cluster_overrides(CONFIGURATION[1]).keys() == {key for key, _ in cluster}
    assert not {key for key, _ in model if key.startswith(CLUSTER_KEYS)}


def test_whatever_listens_wider_than_loopback_has_a_policy() -> None:
    policies = {p["metadata"]["name"]: p["spec"] for p in resources_of("NetworkPolicy")}
    assert policies["deny-ingress"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    guarded = {
        policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
        for name, policy in policies.items()
        if name != "deny-ingress"
    }
    components = {t["metadata"]["labels"]["app.kubernetes.io/component"] for _, t in pod_templates()}
    assert components - {"submitter"} == guarded
    assert not [
        service
        for service in resources_of("Service")
        if service["spec"].get("type", "ClusterIP") != "ClusterIP"
    ]


def test_mlflow_is_started_with_options_it_has_and_with_authentication() -> None:
    deployment = next(d for d in resources_of("Deployment") if d["metadata"]["name"] == "mlflow")
    command = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    shown = subprocess.run(
        [sys.executable, "-m", "mlflow", "server", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    options = dict(word.removeprefix("--").split("=", 1) for word in command if word.startswith("--"))
    assert all(f"--{name}" in shown for name in options)
    assert options["app-name"] == "basic-auth"
    assert "*" not in options["allowed-hosts"].split(",")
    assert load_config(CONFIGURATION).tracking.uri == "http://" + options["allowed-hosts"].split(",")[0]


def test_no_secret_is_written_down() -> None:
    assert resources_of("Secret") == []
    for name, template in pod_templates():
        for container in template["spec"]["containers"]:
            for variable in container.get("env", []):
                if re.search(r"PASSWORD|SECRET|KEY|TOKEN", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"], f"{name}: {variable['name']}"


def test_every_secret_that_pods_read_is_made_in_the_guide() -> None:
    text = "\n".join((INFRA / name).read_text() for name in MANIFESTS)
    used = set(re.findall(r"secretKeyRef: \{name: ([a-z-]+)", text)) | set(
        re.findall(r"secretName: ([a-z-]+)", text)
    )
    made = set(re.findall(r"create secret generic ([a-z-]+)", (INFRA / "README.md").read_text()))
    assert used == made


def test_the_launcher_file_is_one_that_ray_accepts() -> None:
    spec = util.find_spec("ray")
    assert spec is not None
    assert spec.origin is not None
    schema = json.loads((Path(spec.origin).parent / "autoscaler" / "ray-schema.json").read_text())
    launcher = documents("ray-launcher.yaml")[0]
    assert [error.message for error in Draft7Validator(schema).iter_errors(launcher)] == []
    starts = [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in launcher[key]
        if "ray start" in line
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in line for line in starts)


def test_the_slurm_script_is_valid_and_uses_a_token() -> None:
    script = INFRA / "slurm.sh"
    assert subprocess.run(["bash", "-n", str(script)], check=False, timeout=30).returncode == 0
    text = script.read_text()
    assert "RAY_AUTH_MODE=token" in text
    assert "--dashboard-host=127.0.0.1" in text
    assert os.access(script, os.X_OK)


def test_the_image_is_pinned_and_runs_as_nobody_special() -> None:
    text = (INFRA / "Dockerfile").read_text()
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert len(installs) == 3
    assert all("--constraint /build/constraints.txt" in line for line in installs)
    assert text.count("USER 1000:1000") == 2
    ignored = (INFRA / "Dockerfile.dockerignore").read_text().splitlines()
    copied = {word for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for word in line.split()}
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    for path in copied:
        assert (ROOT / path).exists(), path
