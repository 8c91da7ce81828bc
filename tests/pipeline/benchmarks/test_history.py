"""The history of measurements: numbers alone, line by line, and no benchmark that runs on and on."""

from pathlib import Path

from pipeline.benchmarks.history import Measurement, append, measure, read_history, read_numbers


def test_a_line_of_json_leaves_its_numbers() -> None:
    line = '{"nodes": 10, "ratio": 1.5, "sizes": [1, 2], "name": "x"}'
    assert read_numbers(line) == {"nodes": 10.0, "ratio": 1.5}


def test_what_is_added_is_read_again_in_order(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    assert read_history(path) == []
    measurements = [
        Measurement(benchmark=name, date="2026-01-02", revision="abc", machine="m", numbers={"ratio": 2.0})
        for name in ("start", "train")
    ]
    for measurement in measurements:
        append(measurement, path)
    assert read_history(path) == measurements


def test_a_benchmark_that_does_not_end_is_ended() -> None:
    assert measure("train", timeout=0.2) is None
