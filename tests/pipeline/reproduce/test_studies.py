"""Every table of the paper has cells that give a configuration, with the paper's numbers."""

import pytest

from pipeline.config.loading import load_config
from pipeline.paper.tables import load_tables
from pipeline.presets import load_preset
from pipeline.reproduce.studies import TRAINED, Cell, cells_of, select
from pipeline.runtime.errors import UserError


@pytest.mark.parametrize("table", TRAINED)
def test_every_cell_of_a_table_is_a_valid_configuration(table: str) -> None:
    cells = cells_of(table)
    assert cells
    assert len({(cell.dataset, cell.model, cell.variant) for cell in cells}) == len(cells)
    for cell in cells:
        for quick in (False, True):
            preset = load_preset(cell.dataset, cell.model, quick=quick)
            config = load_config(None, {**preset, **cell.overrides})
            assert config.model.name == cell.model
        if cell.paper is not None:
            assert (cell.paper.dataset, cell.paper.model, cell.paper.variant) == (
                cell.dataset,
                cell.model,
                cell.variant,
            )


def test_opponents_stand_next_to_published_numbers_or_the_papers() -> None:
    cells = {(cell.dataset, cell.model): cell.paper for cell in cells_of("opponents")}
    tuned, printed = cells["amazon-photo", "sage"], cells["tolokers", "gcn"]
    assert tuned is not None
    assert printed is not None
    assert (tuned.mean, tuned.std, printed.mean) == (96.78, 0.23, 83.64)
    assert cells["cornell", "mlp"] is None


def test_the_papers_numbers_are_all_there() -> None:
    for table in ("node", "node-hetero", "node-homo", "graph", "tau", "modules", "features"):
        printed = [entry.mean for entry in load_tables()[table].entries if entry.model == "expanded"]
        shown = [cell.paper.mean for cell in cells_of(table) if cell.paper and cell.model == "expanded"]
        assert set(shown) <= set(printed)
        assert bool(shown) == any(mean is not None for mean in printed)


def test_rows_of_our_own_follow_the_papers_on_large_graphs() -> None:
    cells = cells_of("node-hetero")
    ours = [cell for cell in cells if cell.paper is None]
    assert cells[-len(ours) :] == ours
    assert {cell.model for cell in ours} == {"expanded", "sparse", "segment"}


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    cells = [Cell("cornell", "vanilla"), Cell("texas", "expanded", "plain")]
    assert select(cells, ["texas"], []) == cells[1:]
    assert select(cells, [], ["vanilla"]) == cells[:1]
    assert select(cells, [], [], ["preset"]) == cells[:1]
    assert select(cells, [], [], ["plain"]) == cells[1:]
    with pytest.raises(UserError, match=r"dataset of this table, cornell, texas .got 'genius'"):
        select(cells, ["genius"], [])
    with pytest.raises(UserError, match=r"model of this table, vanilla, expanded .got 'gcn'"):
        select(cells, [], ["gcn"])
    with pytest.raises(UserError, match=r"variant of this table, preset, plain .got 'full'"):
        select(cells, [], [], ["full"])
