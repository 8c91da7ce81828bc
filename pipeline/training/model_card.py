"""The card of a trained model: what it was trained on, how good it is, and where not to trust it."""

from pipeline.config.loading import Config
from pipeline.store.arrays import SPLIT_NAMES
from pipeline.store.cleaning import count_parts
from pipeline.store.graph_store import GraphStore
from pipeline.training.results import TrainResult

CARD = "model_card.md"


def write_card(config: Config, store: GraphStore, result: TrainResult, *, task: str) -> str:
    """The card as Markdown."""
    manifest = store.manifest
    facts = [
        ("model", f"{result.model}, {result.num_parameters:,} parameters"),
        ("task", f"{task}, {manifest.num_classes} classes" if task != "link" else "link"),
        ("data", f"{result.dataset}, split {result.split} (store {store.digest[:12]})"),
        ("size", _size(store)),
        ("parts", _parts(store, config.data.split)),
        ("epochs", f"{result.epochs}; the best, chosen on the validation part, is {result.best_epoch}"),
        ("seed", str(result.seed)),
        ("licence of the software", "Apache-2.0; that of the data applies to what is learned from it"),
    ]
    scores = "\n".join(f"| {name} | {value:.4f} |" for name, value in sorted(result.test.items()))
    limits = "\n".join(f"- {line}" for line in _limits(config, store, result))
    return f"""# {result.model} on {result.dataset}

| | |
|---|---|
{_rows(facts)}

## Test scores

| metric | test |
|---|---|
{scores}

Validation {result.metric}: {result.best_val_metric:.4f}; test {result.metric}: {result.test_metric:.4f}.

## Limits

{limits}

## Use

    cocn predict --checkpoint {result.checkpoint.name}    # in the directory of the training
    mlflow models serve -m runs:/RUN_ID/model             # asks: {{"dataframe_split": {{"columns": …}}}}
"""


def _rows(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in facts)


def _size(store: GraphStore) -> str:
    manifest = store.manifest
    graphs = f"{manifest.num_graphs:,} graphs, " if store.is_collection else ""
    counts = f"{manifest.num_nodes:,} nodes, {manifest.num_edges:,} entries"
    return f"{graphs}{counts}, {manifest.num_features:,} features"


def _parts(store: GraphStore, split: int) -> str:
    if not store.num_splits:
        return "none"
    counts = count_parts(store.split(split))
    return ", ".join(f"{counts[name]:,} {name}" for name in SPLIT_NAMES)


def _limits(config: Config, store: GraphStore, result: TrainResult) -> list[str]:
    lines = ["One split and one seed: others give other scores; `cocn compare` shows how much they vary."]
    if not store.is_collection:
        lines.append("It knows one graph. Its scores say nothing about graphs of another kind.")
    if result.protocol == "gin":
        lines.append(
            "The epoch was chosen on the test part, so the test score is too optimistic for new graphs."
        )
    if result.out_of_time:
        lines.append("Training was stopped by its time budget before it had converged.")
    if store.manifest.num_classes > 2 and not config.train.class_weights:
        lines.append("Classes were not weighted: rare ones may be missed; see macro_f1 next to accuracy.")
    return lines
