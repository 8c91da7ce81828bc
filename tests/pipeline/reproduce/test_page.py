"""RESULTS.md shows what the records say, next to the paper, and nothing else."""

import statistics
from pathlib import Path

from pipeline.paper.tables import paper_result
from pipeline.reproduce.page import write_page
from pipeline.reproduce.records import IN_SOURCE, Measurement, Records
from tests.pipeline.reproduce.conftest import SOURCE, training


def test_means_are_those_of_the_records(tmp_path: Path) -> None:
    records = Records(tmp_path)
    values = [0.81, 0.84, 0.9]
    for split, value in enumerate(values):
        records.add(training("cornell", "vanilla", split=split, value=value, cut_short=split == 1))
    page = write_page(records)
    mean, std = 100 * statistics.fmean(values), 100 * statistics.stdev(values)
    printed = paper_result("node", "cornell", "vanilla")
    assert printed is not None
    (line,) = [line for line in page.splitlines() if line.startswith("| Cornell | vanilla")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[4:9] == [
        f"{mean:.2f} ± {std:.2f}",
        f"{printed.mean:.2f} ± {printed.std:.2f}",
        "no",
        "3 of 10",
        "1",
    ]
    assert "`cocn reproduce node`" in page
    assert "revision 00000000" in page
    assert "## Graph classification" not in page


def test_measurements_are_sorted_by_size(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for nodes in (10_000, 2000):
        case = {"model": "sparse", "nodes": nodes}
        values = {"epoch_seconds": nodes / 1000, "memory_mb": 1.0}
        records.add(Measurement(study="complexity", case=case, values=values, seconds=1.0, source=SOURCE))
    lines = [line for line in write_page(records).splitlines() if line.startswith("| sparse")]
    assert lines == ["| sparse | 2,000 | 2 | 1 |", "| sparse | 10,000 | 10 | 1 |"]


def test_the_page_in_the_repository_is_the_one_that_the_records_give() -> None:
    page = Path(__file__).parents[3] / "RESULTS.md"
    assert page.read_text(encoding="utf-8") == write_page(Records(IN_SOURCE))
