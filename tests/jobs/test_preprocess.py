"""`cocn preprocess`, `plan` and `datasets`: results, no-op reruns, one line for bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

from jobs import cli
from jobs import preprocess as job
from pipeline.store.access import open_store

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> None:
    names = dict.fromkeys((*cli.COMMANDS, "preprocess", "plan", "datasets"))
    monkeypatch.setattr(cli, "COMMANDS", tuple(names))
    monkeypatch.delenv("COCN_DATA_ROOT", raising=False)


def cocn(*words: object) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    return int(caught.value.code or 0)


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    content = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert isinstance(content, dict)
    return content


@pytest.mark.usefixtures("local_ray")
def test_preprocess_then_rerun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("preprocess", "minesweeper", "--side", 12, "--store", tmp_path / "store", "--heads", 4, "--json")
    assert cocn(*words) == 0
    first = last_json(capsys)
    assert first["coverage"] > 0.9  # type: ignore[operator]
    assert [stage["name"] for stage in first["stages"]] == ["ingest", "positions", "orders", "segments-0"]  # type: ignore[attr-defined]
    assert cocn(*words) == 0
    second = last_json(capsys)
    assert all(stage["done_before"] for stage in second["stages"])  # type: ignore[attr-defined]
    assert second["digest"] == first["digest"] == open_store(tmp_path / "store").digest
    assert cocn("datasets", "info", tmp_path / "store", "--json") == 0
    assert last_json(capsys)["digest"] == first["digest"]
    assert cocn("datasets", "info", tmp_path / "store") == 0
    assert "every file verified" in capsys.readouterr().out


@pytest.mark.usefixtures("local_ray")
def test_other_parameters_are_refused_or_replace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("preprocess", "minesweeper", "--side", 8, "--store", tmp_path / "store", "--no-segments")
    assert cocn(*words) == 0
    assert cocn(*words, "--truncate", 3) == 2
    assert "truncate=4 stored, 3 requested" in capsys.readouterr().err
    assert cocn("preprocess", "minesweeper", "--side", 9, "--store", tmp_path / "store") == 2
    assert "options.side=8 stored, 9 requested" in capsys.readouterr().err
    assert cocn(*words, "--truncate", 3, "--replace") == 0
    assert open_store(tmp_path / "store").profile().shape == (64, 4)


@pytest.mark.usefixtures("local_ray")
def test_plots(tmp_path: Path) -> None:
    words = (
        "preprocess",
        "minesweeper",
        "--side",
        8,
        "--store",
        tmp_path / "store",
        "--plot",
        tmp_path / "plots",
    )
    assert cocn(*words) == 0
    assert (tmp_path / "plots/adjacency.png").stat().st_size > 0


def test_bad_input_is_one_line_and_leaves_no_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.csv").write_text("a,b\n0,1\n1,-2\n")
    assert cocn("preprocess", tmp_path / "e.csv", "--store", tmp_path / "out/store") == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "got -2 in row 2" in captured.err
    assert not (tmp_path / "out").exists()


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cocn("datasets", "info", "../minesweeper") == 2
    assert "to be a dataset or an existing file" in capsys.readouterr().err


def test_datasets_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cocn("datasets", "list", "--json") == 0
    listed = {entry["name"]: entry for entry in last_json(capsys)["datasets"]}  # type: ignore[attr-defined]
    assert listed["minesweeper"]["where"].startswith("generated")
    assert listed["chameleon"]["nodes"] == 2277
    assert (listed["genius"]["metric"], listed["genius"]["protocol"]) == ("roc_auc", "5 random 50/25/25")
    assert (listed["cora"]["metric"], listed["cora"]["protocol"]) == ("", "")
    raw = tmp_path / "heterophilous/minesweeper/raw"
    raw.mkdir(parents=True)
    (raw / "minesweeper.npz").touch()
    assert cocn("datasets", "list", "--data-root", tmp_path, "--json") == 0
    listed = {entry["name"]: entry for entry in last_json(capsys)["datasets"]}  # type: ignore[attr-defined]
    assert listed["minesweeper"]["where"] == "found"
    assert cocn("datasets", "list") == 0


def test_datasets_info_of_a_generated_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert cocn("datasets", "info", "minesweeper", "--side", 10, "--json") == 0
    content = last_json(capsys)
    report, paper = content["report"], content["paper"]
    assert isinstance(report, dict)
    assert isinstance(paper, dict)
    assert (paper["table"], paper["printed"]["nodes"], paper["misprints"]) == ("node-hetero", "10,000", [])
    assert (report["num_nodes"], report["components"], report["homophily"] > 0.5) == (100, 1, True)
    assert cocn("datasets", "info", "minesweeper", "--side", 10) == 0
    shown = capsys.readouterr().out
    assert "1, the largest 100" in shown
    assert "table node-hetero: roc_auc, 10 given 50/25/25" in shown


def test_plan_of_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cocn("plan", "minesweeper", "--json") == 0
    plan = last_json(capsys)
    assert plan["size"]["entries"] == 78_804  # type: ignore[index]
    assert [stage["name"] for stage in plan["stages"]] == ["ingest", "positions", "orders", "segments"]  # type: ignore[attr-defined]
    assert cocn("plan", "power-law", "--nodes", 10_000_000, "--json") == 0
    large = last_json(capsys)
    assert "landmarks" in large["stages"][1]["note"]  # type: ignore[index]
    assert large["memory_bytes"] > plan["memory_bytes"]  # type: ignore[operator]
    pairs = np.random.default_rng(0).integers(0, 5000, (20_000, 2))
    np.savetxt(tmp_path / "e.csv", pairs, fmt="%d", delimiter=",")
    assert cocn("plan", tmp_path / "e.csv", "--json") == 0
    assert last_json(capsys)["size"]["entries"] == pytest.approx(40_000, rel=0.05)  # type: ignore[index]
    assert cocn("plan", "chameleon") == 0
    assert "62,742 entries" in capsys.readouterr().out


def test_plan_of_a_store_and_of_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipeline.config.settings import SourceOptions
    from pipeline.ingest.stage import ingest

    store = ingest(SourceOptions(source="minesweeper", side=7), tmp_path / "store").store
    assert cocn("plan", store.path, "--json") == 0
    assert last_json(capsys)["size"]["nodes"] == 49  # type: ignore[index]
    np.savez(tmp_path / "g.npz", edges=np.array([[0, 1], [1, 2], [2, 3]]))
    assert cocn("plan", tmp_path / "g.npz", "--json") == 0
    assert last_json(capsys)["size"]["nodes"] == 4  # type: ignore[index]


@pytest.mark.usefixtures("local_ray")
def test_job_prints_json_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"data:\n  source: minesweeper\n  side: 6\n  store: {tmp_path / 'store'}\nmodel:\n  heads: 8\n"
    )
    assert job.main([str(config)]) == 0
    assert last_json(capsys)["num_nodes"] == 36


def test_job_with_bad_arguments(tmp_path: Path) -> None:
    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "jobs.preprocess", *words]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert run().returncode == 2
    missing = run(str(tmp_path / "nothing.yaml"))
    assert (missing.returncode, missing.stderr.count("\n")) == (2, 1)


def test_commands_can_be_registered() -> None:
    import importlib

    app = typer.Typer()
    for name in ("preprocess", "plan", "datasets"):
        importlib.import_module(f"jobs.commands.{name}").register(app)
    assert len(app.registered_commands) == 2
