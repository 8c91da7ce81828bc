"""The report: complete, escaped, and without a single address to fetch from."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.comparison.history import Curve, Selection, Training
from pipeline.comparison.report import Figure, pareto_front, render_report, write_report
from pipeline.comparison.statistics import compare


def training(model: str, split: int, score: float) -> Training:
    curve = Curve((0, 1, 2), (0.5, 0.7, score), (1.0, 2.0, 3.0))
    return Training(
        run_id=f"{model}{split}",
        experiment_id="7",
        parent_id="p",
        model=model,
        dataset="mine<sweeper>",
        metric="roc_auc",
        split=split,
        seed=0,
        config="c",
        test_metric=score,
        start=0,
        train_seconds=12.5,
        rows_per_second=1e4,
        peak_memory_mb=512.0,
        num_parameters=1000,
        curves={"val_metric": curve, "train_loss": curve},
        stages={"positions": 1.5},
        params={"model.name": model, "train.seed": "0", "data.split": str(split)},
    )


@pytest.fixture
def selection() -> Selection:
    scores = {"segment": (0.91, 0.93), "sparse": (0.88, 0.89)}
    some = [training(m, s, v) for m, values in scores.items() for s, v in enumerate(values)]
    return Selection("demo", tuple(some), ("1 trainings without a result are left out.",))


class Tags(HTMLParser):
    """Counts tags and checks that they close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "img", "path", "circle", "rect", "polyline", "polygon"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("circle", "polyline", "polygon", "rect", "path"):
            assert self.open.pop() == tag


def test_everything_is_there_and_closed(selection: Selection) -> None:
    text = render_report(compare(selection), selection)
    tags = Tags(text)
    assert tags.open == []
    assert tags.seen.count("svg") == 6
    assert tags.seen.count("table") == 4
    for part in selection.notes + compare(selection).sentences:
        assert part.replace("<", "&lt;").replace(">", "&gt;") in text


def test_no_address_is_fetched(selection: Selection) -> None:
    text = render_report(compare(selection), selection)
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=.?https?:|@import|url\(", text)


def test_names_from_outside_are_escaped(selection: Selection) -> None:
    text = render_report(compare(selection), selection)
    assert "mine<sweeper>" not in text
    assert "mine&lt;sweeper&gt;" in text


def test_parameters_that_differ_are_shown_and_seeds_are_not(selection: Selection) -> None:
    text = render_report(compare(selection), selection)
    assert "model.name" in text
    assert "data.split" not in text


def test_runs_link_to_the_server(selection: Selection) -> None:
    text = render_report(compare(selection), selection, tracking_url="http://127.0.0.1:5000/")
    assert 'href="http://127.0.0.1:5000/#/experiments/7/runs/segment0?workflowType=machine_learning"' in text


def test_figures_travel_inside_the_file(selection: Selection, tmp_path: Path) -> None:
    picture = tmp_path / "adjacency.svg"
    picture.write_text("<svg/>")
    path = write_report(
        tmp_path / "out" / "report.html",
        compare(selection),
        selection,
        figures=[Figure("Permuted adjacency", picture, "one per head")],
    )
    assert "data:image/svg+xml;base64,PHN2Zy8+" in path.read_text(encoding="utf-8")
    assert [item.name for item in path.parent.iterdir()] == ["report.html"]


def test_the_front_holds_what_nothing_beats() -> None:
    points = [(1.0, 0.5), (2.0, 0.4), (3.0, 0.7), (3.0, 0.6), (4.0, 0.7)]
    assert pareto_front(points, upward=True) == [(1.0, 0.5), (3.0, 0.7)]
    assert pareto_front(points, upward=False) == [(1.0, 0.5), (2.0, 0.4)]


def test_few_pairs_are_called_few(selection: Selection) -> None:
    text = render_report(compare(selection), selection)
    assert "not tested" in text
    assert "Below n = 3 nothing is tested" in text


def test_a_training_without_costs_or_curves_still_has_a_report(selection: Selection) -> None:
    bare = tuple(
        replace(t, curves={}, stages={}, train_seconds=None, peak_memory_mb=None, num_parameters=None)
        for t in selection.trainings
    )
    some = Selection("demo", bare)
    assert Tags(render_report(compare(some), some)).seen.count("svg") == 0
