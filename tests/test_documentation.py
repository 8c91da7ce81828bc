"""The documentation names what exists: files, headings, and rooms in their order."""

import re
from pathlib import Path

import pytest

from tests.test_architecture import ROOMS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), ROOT / "pipeline" / "models" / "README.md"]
#: What a newcomer reads in five minutes.
MOST_LINES = 150


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", read(page)):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not heading or heading in _headings(target), link


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_files_that_are_named_exist(page: Path) -> None:
    for name in re.findall(r"`([\w./-]+\.(?:py|ya?ml|sh))`", read(page)):
        if "/" in name:
            assert (ROOT / name).exists() or (page.parent / name).exists(), name


def test_the_readme_stays_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= MOST_LINES


def test_the_rooms_are_described_in_their_order() -> None:
    table = re.findall(r"^\| `(\w+)/` \|", read(ROOT / "pipeline" / "README.md"), re.MULTILINE)
    assert tuple(table) == ROOMS


def _headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub forms them."""
    titles = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
