"""Progress lines where there is no terminal."""

import io
import re

import pytest

from pipeline.runtime import progress as module
from pipeline.runtime.progress import PlainBar, format_fields, format_rate, progress


def test_plain_lines_go_to_stderr_with_a_last_one_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("positions", total=4, unit="batches") as bar:
        for _ in range(4):
            bar.advance(1, reached=12)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"positions: 4/4 batches, .* batches/s  reached=12\n", captured.err)


def test_lines_are_spaced_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 5.5, 6.0, 12.0, 12.0])
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    bar = PlainBar("work", 4, "rows", stream)
    for _ in range(4):
        bar.advance()
    bar.finish()
    assert [line.split(",")[0] for line in stream.getvalue().splitlines()] == [
        "work: 2/4 rows",
        "work: 4/4 rows",
        "work: 4/4 rows",
    ]


def test_a_failure_inside_is_not_hidden_by_a_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="inside"), progress("work", total=2):
        raise RuntimeError("inside")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("count", "seconds", "text"),
    [(12345, 1.0, "12,345 rows/s"), (1, 3.0, "0.333 rows/s"), (5, 0.0, "0 rows/s")],
)
def test_rates_have_three_digits(count: int, seconds: float, text: str) -> None:
    assert format_rate(count, seconds, "rows") == text


def test_fields_are_short() -> None:
    assert format_fields({"loss": 0.123456, "epoch": 3}) == "loss=0.123 epoch=3"
