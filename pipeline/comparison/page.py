"""Tables and cards of an HTML page, and the templates that draw them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str
    value: float | None = None
    """What the column is sorted by, for numbers."""
    tip: str = ""
    """Shown where the mouse rests on it."""
    address: str = ""
    """What it links to."""
    code: bool = False
    """Whether it is an identifier."""


@dataclass(frozen=True)
class TableRow:
    """One row of a table."""

    cells: Sequence[Cell]
    winner: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first columns are words and whose others are numbers."""

    headings: Sequence[str]
    rows: Sequence[TableRow]
    num_text: int
    sortable: bool = True


@dataclass(frozen=True)
class Card:
    """A drawing with a title and words below it."""

    title: str
    drawing: str
    """SVG or HTML of our own making; it is not escaped."""
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with a table or with cards."""

    title: str
    table: Table | None = None
    cards: Sequence[Card] = ()
    note: str = ""


def embed_picture(path: Path, title: str) -> str:
    """A picture with its bytes in its address."""
    kind = "image/svg+xml" if path.suffix == ".svg" else "image/png"
    data = base64.b64encode(path.read_bytes()).decode()
    return fill_template("picture.html.j2", title=title, address=f"data:{kind};base64,{data}")


def fill_template(name: str, **values: object) -> str:
    """A template of this package with its values filled in, escaped unless the template says otherwise."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("pipeline.comparison", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
