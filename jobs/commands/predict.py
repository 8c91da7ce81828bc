"""`cocn predict`: a trained model's prediction for every node, in one Parquet file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jobs.commands.source import place_of
from jobs.output import emit

if TYPE_CHECKING:
    from rich.table import Table

    from pipeline.prediction.inference import Prediction


def register(app: typer.Typer) -> None:
    app.command("predict")(predict)


def predict(
    out: Annotated[
        str, typer.Option(help="Parquet file to write: a path, or a URI (s3://, gs://).")
    ] = "predictions.parquet",
    run: Annotated[str | None, typer.Option(help="Best checkpoint of this MLflow run.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Path of a checkpoint, or of a training to use its best one.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Store to predict on; by default the training's.")] = None,
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Also write embeddings.")] = False,
    other_graph: Annotated[
        bool, typer.Option("--other-graph", help="Allow a graph that the model was not trained on.")
    ] = False,
    tracking_uri: Annotated[str | None, typer.Option(help="MLflow tracking URI of the run.")] = None,
    output: Annotated[Path, typer.Option(help="Directory that trainings wrote to.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="End with one line of JSON.")] = False,
) -> None:
    """Predict every node: id, prediction, label, split, class probabilities and, optionally, its embedding.

    Example: [bold]cocn predict --run 0a1b2c… --store stores/genius --out predictions.parquet[/bold]
    """
    from pipeline.prediction.inference import predict as run_prediction
    from pipeline.prediction.run_checkpoints import checkpoint_of_run
    from pipeline.runtime.errors import UserError
    from pipeline.storage.files import require_file_place
    from pipeline.storage.object_store import resolve
    from pipeline.store.access import open_store
    from pipeline.tracking.mlflow_store import existing_store
    from pipeline.training.checkpoint import read_origin
    from pipeline.training.remote_copy import open_checkpoint

    target = resolve(place_of("--out", out))
    if isinstance(target, Path):
        require_file_place(target, "--out")
    if (run is None) == (checkpoint is None):
        raise UserError(
            "Expected one of '--run' and '--checkpoint' (got " + ("none)" if run is None else "both)")
        )
    if run is not None:
        found = checkpoint_of_run(existing_store(tracking_uri, output), run, output)
    else:
        found = open_checkpoint(place_of("--checkpoint", checkpoint or ""))
    opened = open_store(place_of("--store", store) if store else read_origin(found).store)
    done = run_prediction(found, opened, target, embeddings=embeddings, other_graph=other_graph)
    emit(done, as_json, _table(done))


def _table(done: "Prediction") -> "Table":
    from rich.table import Table

    metrics = list(dict.fromkeys(name for scores in done.scores.values() for name in scores))
    table = Table("part", *metrics, box=None, padding=(0, 2, 0, 0))
    for part, scores in done.scores.items():
        table.add_row(part, *(f"{scores[name]:.4f}" if name in scores else "" for name in metrics))
    table.caption = f"{done.num_rows:,} {done.rows}, {done.rows_per_second:,.0f} per second\n{done.out}"
    table.caption_justify = "left"
    return table
