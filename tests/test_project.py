"""The files around the code: checks before a commit, on a server, and how to cite."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]


def read(name: str) -> dict[str, object]:
    content = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_the_workflow_runs_what_developers_run_and_may_only_read() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert workflow["permissions"] == {"contents": "read"}
    steps = workflow["jobs"]["checks"]["steps"]  # type: ignore[index, call-overload]
    assert ".ci/run" in [step.get("run") for step in steps]


def test_hooks_before_a_commit_are_those_of_make_lint() -> None:
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]  # type: ignore[index, call-overload]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8")
    for tool in ("ruff check", "ruff format", "mypy"):
        assert any(f"-m {tool}" in hook["entry"] for hook in hooks)
        assert f"-m {tool}" in lint


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = read("CITATION.cff")
    assert citation["version"] == project["version"]
    assert citation["license"] == project["license"]
