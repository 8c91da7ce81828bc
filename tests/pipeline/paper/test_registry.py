"""The benchmarks of the paper: complete, counted as published, every statistic right or noted as wrong."""

import pytest

from pipeline.config.loading import load_config
from pipeline.paper import load_tables
from pipeline.paper.registry import BENCHMARKS, Benchmark, find_benchmark
from pipeline.runtime.errors import UserError

MAIN_TABLES = ("node", "node-hetero", "node-homo", "filter", "graph", "graph-brain", "link", "isomorphism")


def test_every_dataset_of_the_main_tables_is_registered_and_no_other() -> None:
    named = {dataset for table in MAIN_TABLES for dataset in load_tables()[table].datasets}
    assert {benchmark.name for benchmark in BENCHMARKS} == named


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda each: each.name)
def test_a_benchmark_has_results_and_a_metric_that_agrees_with_its_table(benchmark: Benchmark) -> None:
    assert benchmark.models
    metrics = {result.metric for result in benchmark.results() if result.model == benchmark.models[0]}
    assert benchmark.metric in metrics


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda each: each.name)
def test_a_printed_statistic_is_right_or_noted_as_a_misprint(benchmark: Benchmark) -> None:
    noted = {slip.what: slip for slip in benchmark.misprints() if slip.table == benchmark.table}
    counts = counts_of(benchmark)
    for what, printed in benchmark.printed().items():
        if agrees(printed, counts[what]):
            assert what not in noted
        else:
            assert agrees(noted[what].actual, counts[what])


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda each: each.name)
def test_what_a_table_asks_for_is_a_configuration(benchmark: Benchmark) -> None:
    config = load_config(None, benchmark.overrides())
    assert config.data.source == benchmark.name
    assert config.data.train_share + config.data.validation_share < 1


@pytest.mark.parametrize(
    ("name", "text", "shares"),
    [
        ("texas", "10 given 48/32/20", (0.5, 0.25, 10)),
        ("genius", "5 random 50/25/25", (0.5, 0.25, 5)),
        ("coauthor-cs", "10 random 60/20/20", (0.6, 0.2, 10)),
        ("mutag", "10 folds", (0.5, 0.25, 10)),
        ("hcp-age", "10 random 70/10/20", (0.7, 0.1, 10)),
        ("sr25", "all pairs", (0.5, 0.25, 10)),
    ],
)
def test_protocols(name: str, text: str, shares: tuple[float, float, int]) -> None:
    benchmark = find_benchmark(name)
    data = load_config(None, benchmark.overrides()).data
    assert str(benchmark.protocol) == text
    assert (data.train_share, data.validation_share, data.num_splits) == shares


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(UserError, match=r"got 'texsa'\): did you mean 'texas'"):
        find_benchmark("texsa")


def agrees(printed: str, actual: float) -> bool:
    """Whether a count equals the printed one, to the printed digits."""
    text = printed.replace(",", "")
    digits = len(text.partition(".")[2])
    return abs(float(text) - actual) <= 0.501 * 10.0**-digits


def counts_of(benchmark: Benchmark) -> dict[str, float]:
    """Counts that the registry holds, or the catalogue."""
    entry = benchmark.entry
    if entry is None:
        return dict(benchmark.counts)
    features = 0 if entry.degree_features else entry.features
    means = {"mean_nodes": entry.nodes / entry.graphs, "mean_edges": entry.edges / entry.graphs}
    return {"nodes": entry.nodes, "edges": entry.edges, "features": features, "graphs": entry.graphs, **means}
