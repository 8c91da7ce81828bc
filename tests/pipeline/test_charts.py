"""Charts are well-formed SVG with everything inside the frame."""

import xml.etree.ElementTree as ElementTree

import pytest

from pipeline.charts import HEIGHT, WIDTH, Axis, Mark, Series, bar_chart, line_chart, nice_step, scatter_chart

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
    root = parsed(bar_chart([("positions", 2.0), ("segments", 1.0)], "s"))
    widths = [float(bar.attrib["width"]) for bar in root.findall(".//rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=1e-2)


def test_nothing_gives_nothing() -> None:
    assert line_chart([], "x", "y", NAMES) == scatter_chart([], "x", "y", NAMES) == bar_chart([], "s") == ""


@pytest.mark.parametrize(("rough", "step"), [(0.013, 0.02), (1.0, 1.0), (2.1, 5.0), (70, 100)])
def test_steps_are_round(rough: float, step: float) -> None:
    assert nice_step(rough) == pytest.approx(step)


def test_ticks_lie_between_the_ends() -> None:
    assert Axis(0.0, 1.0, 0, 100).ticks() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
