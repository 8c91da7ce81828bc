"""The public names of the rooms of `pipeline/`: what other rooms, loose modules and `jobs/` import from them.

The docstring of each room lists them. `python -m tests.public_names` writes these lists anew.
"""

import ast
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = "May import: "
NOTHING = "no other package"
LISTED = "Public names, by module:"
WIDTH = 108

Names = dict[str, set[str]]


def imported_names(room: str) -> Names:
    """Names by module of a room that code outside of it imports."""
    found: Names = defaultdict(set)
    modules = _modules(room)
    for source, origin, names in _imports():
        inside = source.is_relative_to(ROOT / "pipeline" / room)
        if inside or not f"{origin}.".startswith(f"pipeline.{room}."):
            continue
        module = origin.removeprefix(f"pipeline.{room}").lstrip(".")
        if module:  # what the room's own `__init__` defines is there to be seen
            found[module] |= names
        else:
            found |= {name: set() for name in names & modules}
    return dict(found)


def listed_names(room: str) -> Names:
    """Names by module that the docstring of a room lists."""
    _, _, listed = _docstring(room).partition(LISTED)
    found: Names = {}
    for line in textwrap.dedent(listed).strip().splitlines():
        module, colon, names = line.partition(":") if not line.startswith(" ") else ("", "", line)
        if colon:
            current = found.setdefault(module, set())
        current |= {name.strip() for name in names.split(",") if name.strip()}
    return found


def rooms_it_says_it_may_import(room: str) -> list[str]:
    """The rooms that the docstring of a room allows it to import."""
    _, _, after = _docstring(room).partition(ALLOWED)
    named = " ".join(after.partition(".")[0].split())
    return [] if named == NOTHING else named.split(", ")


def write_list(room: str, below: Sequence[str]) -> None:
    """Write the docstring of a room anew, with what it may import and its public names."""
    path = ROOT / "pipeline" / room / "__init__.py"
    text, doc = path.read_text(encoding="utf-8"), _docstring(room)
    told = doc.partition(ALLOWED)[0].partition(LISTED)[0].strip()
    allowed = textwrap.fill(ALLOWED + (", ".join(below) or NOTHING) + ".", WIDTH)
    lines = [
        textwrap.fill(f"{module}: {', '.join(sorted(names))}", WIDTH - 4, subsequent_indent="    ").strip()
        for module, names in sorted(imported_names(room).items())
    ]
    listed = textwrap.indent("\n".join(lines), "    ")
    parts = [told, allowed, *([f"{LISTED}\n{listed}"] if lines else [])]
    first = ast.parse(text).body[0]
    rest = "".join(text.splitlines(keepends=True)[first.end_lineno :])
    path.write_text('"""' + "\n\n".join(parts) + '\n"""\n' + rest, encoding="utf-8")


@cache
def _imports() -> list[tuple[Path, str, set[str]]]:
    """Every import from a module: the file, the module, and the names."""
    sources = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "jobs").rglob("*.py")]
    return [
        (source, str(node.module), {alias.name for alias in node.names})
        for source in sources
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]


def _modules(room: str) -> set[str]:
    return {path.stem for path in (ROOT / "pipeline" / room).glob("*.py")}


def _docstring(room: str) -> str:
    text = (ROOT / "pipeline" / room / "__init__.py").read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or ""


if __name__ == "__main__":
    from tests.test_architecture import ROOMS

    for number, name in enumerate(ROOMS):
        write_list(name, ROOMS[:number])
