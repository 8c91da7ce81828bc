"""Comparisons recomputed by hand, and by scipy."""

import math
import statistics
from collections.abc import Sequence

import pytest
from scipy import stats

from pipeline.comparison.history import Curve, Selection, Training
from pipeline.comparison.statistics import (
    Contrast,
    compare,
    comparison_table,
    contrast,
    correct_by_holm,
    format_quantity,
    paired_t_test,
)

SEGMENT = (0.91, 0.93, 0.92, 0.94, 0.90)
SPARSE = (0.88, 0.89, 0.90, 0.91, 0.86)


def training(model: str, split: int, score: float, metric: str = "roc_auc", **changes: object) -> Training:
    known: dict[str, object] = {
        "run_id": f"{model}-{split}",
        "experiment_id": "1",
        "parent_id": None,
        "model": model,
        "dataset": "minesweeper",
        "metric": metric,
        "split": split,
        "seed": 0,
        "config": "c",
        "test_metric": score,
        "start": 0,
        "train_seconds": 10.0 if model == "segment" else 5.0,
        "peak_memory_mb": 100.0 if model == "segment" else 400.0,
        "num_parameters": 1234,
    }
    return Training(**(known | changes))  # type: ignore[arg-type]


def trainings(**scores: Sequence[float]) -> tuple[Training, ...]:
    return tuple(training(m, split, v) for m, values in scores.items() for split, v in enumerate(values))


def test_rows_hold_mean_deviation_and_best() -> None:
    comparison = compare(Selection("e", trainings(sparse=SPARSE, segment=SEGMENT)))
    first, second = comparison.rows
    assert (first.model, second.model) == ("segment", "sparse")
    assert first.mean == pytest.approx(sum(SEGMENT) / 5)
    assert first.std == pytest.approx(statistics.stdev(SEGMENT))
    assert (first.best, first.best_run, first.num_runs) == (0.94, "segment-3", 5)
    assert (first.train_seconds, second.peak_memory_mb, first.num_parameters) == (10.0, 400.0, 1234)


def test_the_paired_test_agrees_with_scipy() -> None:
    found = contrast(trainings(sparse=SPARSE, segment=SEGMENT), "segment", "sparse")
    expected = stats.ttest_rel(SEGMENT, SPARSE)
    interval = expected.confidence_interval(0.95)
    assert found.num_pairs == 5
    assert found.difference == pytest.approx(statistics.fmean(SEGMENT) - statistics.fmean(SPARSE))
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == (pytest.approx(interval.low), pytest.approx(interval.high))


def test_only_common_splits_are_paired() -> None:
    some = trainings(sparse=SPARSE[:2], segment=SEGMENT)
    assert contrast(some, "segment", "sparse").num_pairs == 2
    alone = contrast(trainings(sparse=SPARSE[:1], segment=SEGMENT), "segment", "sparse")
    assert (alone.num_pairs, alone.p_value, alone.significant) == (1, None, False)
    nothing = contrast((training("a", 0, 0.5), training("b", 1, 0.5)), "a", "b")
    assert nothing.num_pairs == 0
    assert math.isnan(nothing.difference)


@pytest.mark.parametrize(("differences", "p_value"), [((0.5, 0.5), 0.0), ((0.0, 0.0, 0.0), 1.0)])
def test_equal_differences_have_a_certain_answer(differences: tuple[float, ...], p_value: float) -> None:
    assert paired_t_test(differences) == (differences[0], 0.0, p_value)


def test_holm_corrects_by_rank_and_keeps_the_order() -> None:
    p_values = {"a": 0.01, "b": 0.04, "c": 0.03}
    given = [Contrast("d", name, "x", 5, 0.1, 0.0, 0.2, p) for name, p in p_values.items()]
    found = {c.first: c for c in correct_by_holm([*given, Contrast("d", "e", "x", 1, 0.1, None, None, None)])}
    assert found["a"].p_value == pytest.approx(0.03)
    assert found["c"].p_value == pytest.approx(0.06)
    assert found["b"].p_value == pytest.approx(0.06)
    assert found["e"].p_value is None
    assert [name for name, c in found.items() if c.significant] == ["a"]


def test_words_say_who_wins_on_what() -> None:
    (sentence,) = compare(Selection("e", trainings(sparse=SPARSE, segment=SEGMENT))).sentences
    assert sentence.startswith("On minesweeper, segment reaches a test ROC AUC of 0.920 ± 0.016")
    assert "is significant (p " in sentence
    assert "paired over only 5 common splits and seeds" in sentence
    assert sentence.endswith("Sparse trains 2.0 times faster and segment needs 4.0 times less memory.")


@pytest.mark.parametrize("count", [1, 2])
def test_few_splits_claim_nothing(count: int) -> None:
    compared = compare(Selection("e", trainings(sparse=SPARSE[:count], segment=SEGMENT[:count])))
    assert f"over {count} common splits and seeds, fewer than 3, chance cannot" in compared.sentences[0]
    assert "significant" not in compared.sentences[0]
    assert [(c.p_value, c.low, c.significant) for c in compared.contrasts] == [(None, None, False)]


def test_of_many_models_the_cheapest_are_named() -> None:
    (sentence,) = compare(Selection("e", trainings(sparse=SPARSE, segment=SEGMENT, gcn=SPARSE))).sentences
    assert "trains fastest" not in sentence  # sparse and gcn take equally long
    assert sentence.endswith("Segment needs least memory (100 MB).")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.79911, "0.799"), (1.1234, "1.12"), (28.0, "28.0"), (1284.2, "1,284"), (3, "3")],
)
def test_quantities_have_three_digits(value: float | None, shown: str) -> None:
    assert format_quantity(value) == shown


def test_lower_is_better_for_errors() -> None:
    some = (training("a", 0, 0.1, metric="mae"), training("b", 0, 0.2, metric="mae"))
    assert [row.model for row in compare(Selection("e", some)).rows] == ["a", "b"]


def test_time_to_95_percent_of_the_best() -> None:
    curve = Curve((0, 1, 2, 3), (0.50, 0.96, 0.90, 1.00), (1.0, 2.0, 3.0, 4.0))
    assert training("a", 0, 0.9, curves={"val_metric": curve}).seconds_to_95 == 2.0
    assert training("a", 0, 0.9).seconds_to_95 is None


def test_the_table_has_a_line_a_row() -> None:
    table = comparison_table(compare(Selection("e", trainings(sparse=SPARSE, segment=SEGMENT))))
    assert table.row_count == 2
