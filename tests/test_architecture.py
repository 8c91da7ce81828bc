"""Import rules: jobs → pipeline → cocn, the rooms of `pipeline/` in order, one importer per heavy library."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.public_names import imported_names, listed_names, rooms_it_says_it_may_import

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("cocn", "pipeline", "jobs")
LOWER = {"cocn": {"cocn"}, "pipeline": {"cocn", "pipeline"}, "jobs": {"cocn", "pipeline", "jobs"}}
FORBIDDEN_IN_COCN = {"ray", "mlflow", "pyarrow", "networkit"}
ONLY_IMPORTERS = {
    "mlflow": ("pipeline/tracking/mlflow_store.py", "pipeline/tracking/mlflow_models.py"),
    "networkit": ("pipeline/ingest/networkit_graphs.py",),
    "torch_sparse": ("cocn/propagation.py",),
}
#: The rooms of `pipeline/`, lowest first: a room imports only from rooms before it.
ROOMS = (
    "runtime",
    "config",
    "storage",
    "engine",
    "tracking",
    "store",
    "ingest",
    "paper",
    "presets",
    "positions",
    "orders",
    "features",
    "segments",
    "models",
    "training",
    "prediction",
    "comparison",
    "race",
    "tuning",
    "cluster",
    "reproduce",
    "benchmarks",
)
#: Modules of `pipeline/` that lie in no room; they may import from all of them, and no room from them.
LOOSE = ("__init__", "demo", "serving")
MOST_LINES = 400
SLOW_TO_IMPORT = ("torch", "torch_geometric", "ray", "mlflow", "networkit", "numba", "matplotlib", "pyarrow")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported_roots(source: Path) -> set[str]:
    """Top-level names of everything a file imports, at module level or inside functions."""
    roots = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            roots.add(node.module.split(".")[0])
    return roots


def imported_rooms(source: Path) -> set[str]:
    """Rooms, and loose modules, of `pipeline/` that a file imports from."""
    rooms = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "pipeline":
            names = [f"pipeline.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("pipeline.")}
    return rooms


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level names in sys.modules after `statement` ran in a fresh interpreter."""
    program = f"import sys\n{statement}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_downwards(package: str) -> None:
    for source in sources(package):
        upwards = (imported_roots(source) & set(PACKAGES)) - LOWER[package]
        assert not upwards, f"{source.relative_to(ROOT)} imports {sorted(upwards)}"


def test_no_source_imports_the_tests() -> None:
    for package in PACKAGES:
        for source in sources(package):
            assert "tests" not in imported_roots(source), source


def test_the_models_name_none_of_the_pipelines_libraries() -> None:
    for source in sources("cocn"):
        assert not imported_roots(source) & FORBIDDEN_IN_COCN, source


def test_importing_every_model_module_loads_none_of_the_pipelines_libraries() -> None:
    modules = [".".join(source.relative_to(ROOT).with_suffix("").parts) for source in sources("cocn")]
    names = sorted(module.removesuffix(".__init__") for module in modules)
    assert names, "the package cocn has no modules"
    loaded = modules_loaded_by("\n".join(f"import {name}" for name in names))
    assert not loaded & (FORBIDDEN_IN_COCN | {"pipeline", "jobs"})


def test_every_module_of_the_pipeline_lies_in_a_known_room() -> None:
    packages = {path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")}
    assert packages == set(ROOMS)
    assert {path.stem for path in (ROOT / "pipeline").glob("*.py")} == set(LOOSE)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_from_rooms_below_it(room: str) -> None:
    allowed = set(ROOMS[: ROOMS.index(room) + 1])
    for source in (ROOT / "pipeline" / room).rglob("*.py"):
        if "assets" not in source.parts:  # the script inside a logged model imports the name that stays
            assert imported_rooms(source) <= allowed, source


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_lists_its_public_names_and_what_it_may_import(room: str) -> None:
    remedy = "run `python -m tests.public_names`"
    assert listed_names(room) == imported_names(room), remedy
    assert rooms_it_says_it_may_import(room) == [*ROOMS[: ROOMS.index(room)]], remedy


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_that_other_rooms_import_has_no_underscore(room: str) -> None:
    private = {name for names in imported_names(room).values() for name in names if name.startswith("_")}
    assert not private


@pytest.mark.parametrize("room", ROOMS)
def test_no_two_modules_of_a_room_differ_by_a_plural_only(room: str) -> None:
    names = {path.stem for path in (ROOT / "pipeline" / room).glob("*.py")}
    assert not {name for name in names if f"{name}s" in names}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_is_long(package: str) -> None:
    long = {
        str(path): lines
        for path in sources(package)
        if (lines := path.read_text(encoding="utf-8").count("\n")) > MOST_LINES
    }
    assert not long


@pytest.mark.parametrize(("library", "allowed"), ONLY_IMPORTERS.items())
def test_few_modules_import_the_library(library: str, allowed: tuple[str, ...]) -> None:
    importers = {
        str(source.relative_to(ROOT))
        for package in PACKAGES
        for source in sources(package)
        if library in imported_roots(source)
    }
    assert importers <= set(allowed)


def test_building_the_command_line_loads_nothing_slow() -> None:
    loaded = modules_loaded_by("from jobs.cli import build_app; build_app()")
    assert not loaded & set(SLOW_TO_IMPORT)


def test_naming_what_logged_models_import_loads_nothing_slow() -> None:
    assert not modules_loaded_by("import pipeline.tracking") & set(SLOW_TO_IMPORT)


def test_reading_a_configuration_loads_nothing_slow() -> None:
    loaded = modules_loaded_by("from pipeline.config.loading import load_config; load_config()")
    assert not loaded & set(SLOW_TO_IMPORT)
