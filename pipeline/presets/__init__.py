"""Settings of a model on a benchmark: the paper's hyper-parameters, and smaller ones for a quick look.

`<dataset>/<model>.yaml` holds what is specific, and `extends` names the rest: files are read in the order
listed, later ones overriding earlier ones. An opponent without a file of its own uses
`opponents/<model>.yaml`, which serves any graph. The benchmark's splits and metric come from the registry,
so that a preset is all that a training needs.

May import: runtime, config, storage, engine, tracking, store, ingest, paper.
"""

from importlib import resources
from typing import Any, get_args

import yaml

from pipeline.config.nested_keys import dotted_values, merge
from pipeline.config.settings import ModelConfig
from pipeline.paper.registry import FAMILY, find_benchmark
from pipeline.runtime.errors import UserError

OPPONENTS = tuple(
    name for name in get_args(ModelConfig.model_fields["name"].annotation) if name not in FAMILY
)
QUICK = "quick"
DEFAULTS = "opponents"
EXTENDS = "extends"


def load_preset(dataset: str, model: str, *, quick: bool = False) -> dict[str, object]:
    """Values of the configuration for a model on a benchmark, by dotted key.

    Args:
        dataset: name of the benchmark.
        model: name of the model.
        quick: use the smaller settings, which are feasible without a GPU.

    Raises:
        UserError: if there is no such benchmark, or no preset of the model for it.
    """
    benchmark = find_benchmark(dataset)
    content = _resolve(_file_of(dataset, model))
    smaller = content.pop(QUICK, {})
    if quick:
        merge(content, smaller)
    values = {**benchmark.overrides(), **dict(dotted_values(content)), "model.name": model}
    return {"model.recipe": "paper", "data.directed": False, **values} if model in FAMILY else values


def default_preset(model: str, *, quick: bool = False) -> dict[str, object]:
    """What replaces the defaults on any graph, by dotted key; empty for our own family."""
    return shared_preset(f"{DEFAULTS}/{model}", quick=quick) if model in OPPONENTS else {}


def shared_preset(name: str, *, quick: bool = False) -> dict[str, object]:
    """The values of a file that others extend, by dotted key: `segment`, `node-large`, `graph`, …"""
    content = _resolve(name)
    smaller = content.pop(QUICK, {})
    if quick:
        merge(content, smaller)
    return dict(dotted_values(content))


def presets_of(dataset: str) -> tuple[str, ...]:
    """Models that have their own preset for a dataset, by name."""
    folder = resources.files(__name__).joinpath(dataset)
    names = (file.name for file in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _file_of(dataset: str, model: str) -> str:
    models = presets_of(dataset)
    if model in models:
        return f"{dataset}/{model}"
    if model in OPPONENTS:
        return f"{DEFAULTS}/{model}"
    known = ", ".join(models) or "none"
    raise UserError(f"Expected a model with a preset for '{dataset}' (got '{model}'): there are {known}")


def _resolve(name: str) -> dict[str, Any]:
    """A file merged over those that it extends."""
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    parents = content.pop(EXTENDS, [])
    resolved: dict[str, Any] = {}
    for parent in [parents] if isinstance(parents, str) else parents:
        merge(resolved, _resolve(parent))
    merge(resolved, content)
    return resolved
