"""Figures from models on disk, and the whole report in a browser."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from jobs import cli
from pipeline.comparison.history import Selection, select_trainings
from pipeline.comparison.model_figures import Outcome, best_trainings, draw_confusion, figures_for
from pipeline.comparison.report import write_report
from pipeline.comparison.statistics import compare
from pipeline.ingest.generators import minesweeper
from pipeline.store.access import create_store, open_store
from pipeline.store.timings import stage_seconds
from pipeline.tracking.mlflow_server import free_port, serve
from pipeline.tracking.mlflow_store import PAGE_QUERY, existing_store
from pipeline.tracking.runs import ARTIFACTS
from pipeline.training.campaign import run_campaign
from pipeline.training.prepare import open_prepared
from tests.browser import kept, open_browser
from tests.pipeline.conftest import SIDE, Parameters, prepare_tiny, tiny_config

MODELS = ("segment", "sparse")
PHONE, DESKTOP = 390, 1280
# MLflow's pages ask who is logged in, which only a server with a login knows, and lay out in two passes.
OF_MLFLOW = ("/mlflow/users/current", "ResizeObserver loop completed")
# Texts of one chart that lie upon each other.
OVERLAPS = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([two, b]) =>
    a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4
  ).map(([two]) => `${one} / ${two}`));
})"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory, tracking_database: Path) -> Path:
    """Two models on two splits, trained for real."""
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("compared")
    shutil.copy(tracking_database, directory / "mlflow.db")
    store = prepare_tiny(create_store(directory / "store", minesweeper(SIDE, num_splits=2), Parameters()))
    uri = f"sqlite:///{directory / 'mlflow.db'}"
    config = tiny_config(directory, train__epochs=4, tracking__uri=uri)
    run_campaign(config, store, MODELS, [0, 1], [0])
    return directory


@pytest.fixture
def selection(output: Path) -> Selection:
    return select_trainings(existing_store(f"sqlite:///{output / 'mlflow.db'}", output), "cocn")


@pytest.fixture(scope="module")
def report(output: Path) -> Path:
    uri = f"sqlite:///{output / 'mlflow.db'}"
    words = ["compare", "--output", str(output), "--tracking-uri", uri, "--json"]
    with pytest.raises(SystemExit) as caught:
        cli.main([*words, "--out", str(output / "report.html")])
    assert not caught.value.code
    return output / "report.html"


def test_the_report_is_kept_with_the_command_that_trained(report: Path, selection: Selection) -> None:
    store = existing_store(f"sqlite:///{report.parent / 'mlflow.db'}", report.parent)
    (parent,) = {training.parent_id for training in selection.trainings}
    assert parent is not None
    assert "report.html" in {item.path for item in store.client.list_artifacts(parent)}


def test_models_on_disk_are_drawn(selection: Selection) -> None:
    figures = figures_for(selection)
    assert [figure.title for figure in figures] == [
        "ROC on minesweeper",
        "Coverage of the edges on minesweeper",
        "Permuted adjacency on minesweeper",
    ]
    assert figures[0].drawing.count("<polyline") == len(MODELS)
    assert "data:image/png;base64," in figures[2].drawing
    assert figures[1].drawing.count("<tr>") == 1 + 1 + 2 + 1


def test_models_that_are_gone_are_left_out(selection: Selection, tmp_path: Path) -> None:
    gone = tuple(replace(training, directory=str(tmp_path / "gone")) for training in selection.trainings)
    assert figures_for(replace(selection, trainings=gone)) == []


def test_a_comparison_with_links_has_a_report(
    tmp_path: Path, tracking_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    shutil.copy(tracking_database, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = create_store(tmp_path / "store", minesweeper(SIDE, num_splits=2), Parameters())
    for task, model in (("link", "sparse"), ("node", "mlp")):
        settings = {"data__task": task, "data__store": store.path, "model__name": model, "train__epochs": 2}
        config = tiny_config(tmp_path, tracking__uri=uri, **settings)
        run_campaign(config, open_prepared(config), [model], [0], [0])
    words = ["compare", "--output", str(tmp_path), "--tracking-uri", uri, "--json"]
    with pytest.raises(SystemExit) as caught:
        cli.main([*words, "--out", str(tmp_path / "report.html")])
    assert not caught.value.code, capsys.readouterr().err
    written = (tmp_path / "report.html").read_text()
    assert "minesweeper links" in written
    assert "ROC on minesweeper<" in written


def test_the_best_training_is_drawn(selection: Selection) -> None:
    for one in best_trainings(selection):
        same = [t.test_metric for t in selection.trainings if t.model == one.model]
        assert one.test_metric == max(same)


def test_a_confusion_matrix_counts_labels_by_row(selection: Selection, output: Path) -> None:
    probabilities = np.eye(3, dtype=np.float32)[[0, 1, 1, 2]]
    tested = Outcome(selection.trainings[0], output / "store", probabilities, np.array([0, 1, 0, 2]))
    drawing = draw_confusion(tested).drawing
    tips = re.findall(r"true class (\d), predicted class (\d): (\d)", drawing)
    assert {(int(a), int(b)): int(n) for a, b, n in tips if n != "0"} == {
        (0, 0): 1,
        (0, 1): 1,
        (1, 1): 1,
        (2, 2): 1,
    }


def test_stages_are_timed_with_those_they_were_built_on(selection: Selection, output: Path) -> None:
    segment = next(training for training in selection.trainings if training.model == "segment")
    assert {"propagated-1", "positions"} <= set(segment.stages)
    found = stage_seconds(open_store(output / "store"), ["propagated-2"])
    assert set(found) >= {"propagated-2"}


@pytest.mark.parametrize(("width", "name"), [(PHONE, "phone"), (DESKTOP, "desktop")])
def test_the_report_in_a_browser(report: Path, tmp_path: Path, width: int, name: str) -> None:
    with open_browser(tmp_path) as page:
        page.open(report.as_uri(), width, mobile=name == "phone")
        page.picture(kept(tmp_path) / f"report-{name}.png")
        assert page.complaints() == []
        paper = "getComputedStyle(document.body).backgroundColor"
        papers = [page.run(paper)]
        for look, media, scheme in (("dark", "", "dark"), ("print", "print", "dark")):
            page.emulate(media, scheme)
            page.picture(kept(tmp_path) / f"report-{name}-{look}.png")
            papers.append(page.run(paper))
        page.emulate()
        assert papers[0] == papers[2] == "rgb(255, 255, 255)"
        assert papers[1] != papers[0]
        # Nothing is wider than the window; wide tables scroll within themselves.
        assert page.run("document.documentElement.scrollWidth") <= width
        drawn = "[...document.querySelectorAll('figure svg, figure img')].map(e => e.getBoundingClientRect())"
        boxes = page.run(f"JSON.stringify({drawn}.map(b => [b.width, b.height]))")
        assert len(json.loads(boxes)) >= 8
        assert all(wide > 100 and high > 40 for wide, high in json.loads(boxes))
        assert page.run("[...document.images].every(image => image.naturalWidth > 0)")
        assert page.run("document.querySelectorAll('polyline, circle, rect.bar').length") > 10
        assert page.run(f"({OVERLAPS})()") == []
        column = (
            "[...document.querySelector('table.sortable').tBodies[0].rows].map(r => r.cells[0].innerText)"
        )
        click = "document.querySelectorAll('table.sortable th button')[0].click()"
        page.run(click)
        first = page.run(f"JSON.stringify({column})")
        page.run(click)
        second = page.run(f"JSON.stringify({column})")
        assert json.loads(first) == sorted(MODELS, reverse=True)
        assert json.loads(second) == sorted(MODELS)


@pytest.mark.cluster
def test_mlflows_page_of_a_run_in_a_browser(selection: Selection, output: Path, tmp_path: Path) -> None:
    run = selection.trainings[0]
    with (
        serve(f"sqlite:///{output / 'mlflow.db'}", free_port(), output / ARTIFACTS) as server,
        open_browser(tmp_path) as page,
    ):
        for width, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
            page.open("about:blank", width)
            page.open(
                f"{server.address}/#/experiments/{run.experiment_id}/runs/{run.run_id}{PAGE_QUERY}", width
            )
            page.wait_for("document.body.innerText.includes('test_metric')")
            page.wait_for("document.body.innerText.includes('cocn.dataset')")
            page.picture(kept(tmp_path) / f"mlflow-run-{name}.png", whole=False)
            ours = [said for said in page.complaints() if not any(known in said for known in OF_MLFLOW)]
            assert ours == []


def test_the_report_of_the_demo_takes_the_same_figures(selection: Selection, output: Path) -> None:
    store = open_store(output / "store")
    path = write_report(
        output / "again.html", compare(selection), selection, figures=figures_for(selection, store)
    )
    assert "ROC on minesweeper" in path.read_text(encoding="utf-8")
