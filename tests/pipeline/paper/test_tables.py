"""The paper's tables as data: complete, consistent, and every misprint noted."""

import pytest

from pipeline.paper import Table, load_misprints, load_tables, paper_result

REPRODUCED = {
    *("node", "node-hetero", "node-homo", "filter", "graph", "graph-brain", "isomorphism", "link"),
    *("tau", "modules", "features", "permutations", "receptive-field", "information-loss"),
    *("order-explicit", "order-implicit", "complexity"),
}


def test_every_table_and_figure_is_there() -> None:
    assert set(load_tables()) >= REPRODUCED


@pytest.mark.parametrize(
    ("table", "dataset", "model", "mean", "std"),
    [
        ("node", "chameleon", "expanded", 79.35, 1.42),
        ("node", "actor", "ggcn", 37.54, 1.56),
        ("node-hetero", "genius", "segment", 90.80, 0.89),
        ("node-homo", "amazon-photo", "sparse", 95.03, 0.03),
        ("graph", "mutag", "patchy-san", 88.95, 4.21),
        ("graph-brain", "hcp-age", "expanded", 46.01, None),
        ("filter", "squirrel-filtered", "expanded", 41.57, None),
        ("isomorphism", "graph8c", "mlp", 293_000.0, None),
        ("link", "pcqm-contact", "gcn", 32.34, 0.06),
    ],
)
def test_results_are_those_printed(
    table: str, dataset: str, model: str, mean: float, std: float | None
) -> None:
    result = paper_result(table, dataset, model)
    assert result is not None
    assert (result.mean, result.std) == (mean, std)


def test_variants_and_metrics_are_told_apart() -> None:
    assert mean_of("tau", "chameleon", "vanilla", variant="tau=0.01") == 67.32
    assert mean_of("link", "pcqm-contact", "expanded", metric="hits@3") == 41.25
    assert mean_of("modules", "tolokers", "sparse", variant="full", metric="improvement") == 12.19


@pytest.mark.parametrize(
    ("dataset", "model", "printed"), [("genius", "h2gcn", "OOM"), ("genius", "fagcn", "-")]
)
def test_what_is_no_number_stays_as_printed(dataset: str, model: str, printed: str) -> None:
    result = paper_result("node-hetero", dataset, model)
    assert result is not None
    assert (result.printed, result.mean, result.unit) == (printed, None, "%")


def test_what_the_paper_lacks_is_none() -> None:
    assert paper_result("node", "chameleon", "segment") is None
    assert paper_result("tau", "chameleon", "vanilla", variant="tau=3") is None


def test_no_cell_is_there_twice() -> None:
    for table in load_tables().values():
        keys = [(cell.dataset, cell.model, cell.variant, cell.metric) for cell in table.entries]
        assert len(set(keys)) == len(keys), table.name


def test_printed_mean_ranks_are_one_too_low() -> None:
    """A slip of the paper that recomputing shows; it also checks all of that table's accuracies."""
    table = load_tables()["node"]
    for model in table.models:
        ranks = [rank(table, dataset, model) for dataset in table.datasets]
        assert mean_of("node", "all", model) == pytest.approx(sum(ranks) / len(ranks) - 1, abs=0.006)


def test_printed_ranks_follow_from_the_accuracies() -> None:
    table = load_tables()["filter"]
    wrong = []
    for dataset in table.datasets:
        for model in table.models:
            if mean_of("filter", dataset, model, metric="rank") != rank(table, dataset, model):
                wrong.append((dataset, model))
    assert wrong == [("squirrel-filtered", "gbk-gnn")]
    assert any(slip.dataset == "squirrel-filtered" and "gbk-gnn" in slip.what for slip in load_misprints())


def test_printed_improvements_are_relative() -> None:
    table = load_tables()["modules"]
    for cell in table.entries:
        if cell.metric == "improvement":
            plain, other = (
                mean_of("modules", cell.dataset, cell.model, variant=variant)
                for variant in ("plain", cell.variant)
            )
            assert cell.mean == pytest.approx(100 * (other / plain - 1), abs=0.0075)


def test_misprints_quote_the_paper() -> None:
    tables = load_tables()
    for slip in load_misprints():
        table = tables[slip.table]
        assert slip.dataset == "all" or slip.dataset in table.datasets, slip
        printed = [cell.printed for cell in table.entries if cell.dataset == slip.dataset]
        printed += table.statistics.get(slip.dataset, {}).values()
        assert slip.dataset == "all" or slip.printed in printed, slip
        assert slip.note.endswith(".")
        assert slip.printed != slip.actual


def mean_of(table: str, dataset: str, model: str, variant: str = "", metric: str | None = None) -> float:
    result = paper_result(table, dataset, model, variant=variant, metric=metric)
    assert result is not None
    assert result.mean is not None
    return result.mean


def rank(table: Table, dataset: str, model: str) -> float:
    """Rank of a model among all, from 1; equal ones share the mean of their ranks."""
    scores = {c.model: c.mean for c in table.entries if (c.dataset, c.metric) == (dataset, "accuracy")}
    own, *others = scores.pop(model), *scores.values()
    assert own is not None
    known = [other for other in others if other is not None]
    return 1 + sum(other > own for other in known) + sum(other == own for other in known) / 2
