"""Charts are well-formed SVG with everything inside the frame."""

import xml.etree.ElementTree as ElementTree

import pytest

from pipeline.comparison.svg_charts import (
    HEIGHT,
    WIDTH,
    Axis,
    Mark,
    Series,
    line_chart,
    nice_step,
    scatter_chart,
    share_bars,
    stacked_chart,
)

NAMES = ("a & b", "c")


def parsed(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<div>{drawing}</div>")  # noqa: S314 - our own text


def test_lines_bands_and_legend() -> None:
    band = Series("a & b", (0, 1, 2), (1.0, 2.0, 3.0), (0.5, 1.5, 2.5), (1.5, 2.5, 3.5))
    root = parsed(line_chart([band, Series("c", (0, 1), (2.0, 2.0))], "epoch", "loss < 1", NAMES))
    assert len(root.findall(".//polyline")) == 2
    assert len(root.findall(".//polygon")) == 1
    assert [item.text for item in root.findall(".//li")] == ["a & b", "c"]
    for shape in root.findall(".//polyline"):
        for pair in shape.attrib["points"].split():
            x, y = map(float, pair.split(","))
            assert 0 <= x <= WIDTH
            assert 0 <= y <= HEIGHT


def test_values_that_are_no_numbers_are_left_out() -> None:
    root = parsed(line_chart([Series("c", (0, 1, 2), (1.0, float("nan"), 3.0))], "x", "y", NAMES))
    line = root.find(".//polyline")
    assert line is not None
    assert len(line.attrib["points"].split()) == 2


def test_a_single_point_has_a_place() -> None:
    root = parsed(scatter_chart([Mark("c", 3.0, 0.5, "split 0")], "s", "auc", NAMES))
    assert [dot.findtext("title") for dot in root.findall(".//circle")] == ["c split 0"]


def test_bars_are_as_long_as_their_values() -> None:
    root = parsed(stacked_chart({"c": {"training": 1.0}, "a": {"positions": 2.0, "training": 1.0}}, "s"))
    bars = root.findall(".//rect")
    widths = [float(bar.attrib["width"]) for bar in bars]
    assert widths == pytest.approx([widths[0], 2 * widths[0], widths[0]], rel=1e-2)
    assert bars[0].attrib["class"] == bars[2].attrib["class"] != bars[1].attrib["class"]
    assert [item.text for item in root.findall(".//li")] == ["positions", "training"]


def test_nothing_gives_nothing() -> None:
    assert (
        line_chart([], "x", "y", NAMES)
        == scatter_chart([], "x", "y", NAMES)
        == stacked_chart({"a": {}}, "s")
        == ""
    )


@pytest.mark.parametrize(("rough", "step"), [(0.013, 0.02), (1.0, 1.0), (2.1, 5.0), (70, 100)])
def test_steps_are_round(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


def test_ticks_lie_between_the_ends() -> None:
    assert Axis(0.0, 1.0, 0, 100).ticks() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_costs_far_apart_stand_on_a_logarithmic_scale() -> None:
    assert Axis(0.6, 55.0, 0, 100, logarithmic=True).ticks() == pytest.approx([1, 2, 5, 10, 20, 50])
    marks = [Mark("c", cost, 0.5) for cost in (0.1, 1.0, 10.0)]
    places = [
        float(dot.attrib["cx"])
        for dot in parsed(scatter_chart(marks, "s", "auc", NAMES)).findall(".//circle")
    ]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


def test_a_front_is_a_stair() -> None:
    marks = [Mark("c", 1.0, 0.5), Mark("a & b", 2.0, 0.7)]
    root = parsed(scatter_chart(marks, "s", "auc", NAMES, front=[(1.0, 0.5), (2.0, 0.7)]))
    (line,) = root.findall(".//polyline")
    (x0, y0), (x1, y1), (x2, y2) = (map(float, pair.split(",")) for pair in line.attrib["points"].split())
    assert (y0, x1) == (y1, x2)
    assert x0 < x1
    assert y2 < y1


def test_bars_of_shares_fill_their_row_and_escape_their_names() -> None:
    drawing = share_bars([("segment, <data>", {"own": 0.25, "labels & more": 0.75})])
    assert "&lt;data&gt;" in drawing
    assert "labels &amp; more: 75.0%" in drawing
    widths = [float(part.split('"')[0]) for part in drawing.split(' width="')[1:]]
    assert widths[1] == pytest.approx(3 * widths[0], rel=0.02)
