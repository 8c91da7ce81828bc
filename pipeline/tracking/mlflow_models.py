"""Models in MLflow: written as code and safetensors, loaded from a script, registered under a name.

This module and `mlflow_store` are the only ones that import mlflow.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.runtime.errors import UserError
from pipeline.runtime.passwords import hide_passwords
from pipeline.tracking.mlflow_store import TrackingStore

if TYPE_CHECKING:
    import pandas as pd

    Answer = Callable[[Sequence[int], str | None], pd.DataFrame]

#: The alias of the most recently registered version.
LATEST = "latest-trained"


@dataclass(frozen=True)
class Registered:
    """A version of a registered model."""

    name: str
    version: str
    alias: str
    run_id: str

    @property
    def uri(self) -> str:
        """What `mlflow.pyfunc.load_model` and `mlflow models serve -m` take."""
        return f"models:/{self.name}@{self.alias}"


def register_model(
    store: TrackingStore, run_id: str, name: str, alias: str, folder: str = "model"
) -> Registered:
    """Register the model that a run logged as a new version, and give it an alias.

    A run whose model is already registered under the name keeps its version.

    Raises:
        UserError: If the tracker refuses the name, or does not answer.
    """
    from mlflow.exceptions import MlflowException

    client = store.client
    try:
        found = client.search_model_versions(f"name = '{name}' and run_id = '{run_id}'") if name else []
        if not client.search_registered_models(f"name = '{name}'"):
            client.create_registered_model(name)
        if found:
            version = str(found[0].version)
        else:
            source = f"{store.read_run(run_id).artifact_uri}/{folder}"
            version = str(client.create_model_version(name, source, run_id).version)
        client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        reason = hide_passwords(str(error)).splitlines()[0]
        raise UserError(f"Expected MLflow to register a model '{name}' (got {reason})") from error
    return Registered(name, version, alias, run_id)


def input_example(column: str) -> "pd.DataFrame":
    """What to send to a model, as shown by MLflow's pages and clients."""
    import pandas as pd

    return pd.DataFrame({column: [0, 1, 2]})


def save_model(path: Path, script: Path, checkpoint: Path, column: str) -> Path:
    """Write a model that `mlflow.pyfunc.load_model` runs from code; nothing in it is pickled.

    Args:
        path: Directory to write; an existing one is replaced.
        script: Python file that calls `offer_model`.
        checkpoint: Directory that the model reads: safetensors and JSON.
        column: The column of numbers that it predicts for.
    """
    pyfunc = _import_pyfunc()
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema

    signature = ModelSignature(
        Schema([ColSpec(DataType.long, column)]),
        params=ParamSchema([ParamSpec("store", DataType.string, "")]),
    )
    shutil.rmtree(path, ignore_errors=True)
    with _without_own_warnings():
        pyfunc.save_model(
            str(path),
            python_model=str(script),
            artifacts={"checkpoint": str(checkpoint)},
            signature=signature,
            input_example=input_example(column),
            # Given, so that MLflow does not load the model in another process to infer them.
            pip_requirements=["cocn"],
        )
    return path


def offer_model(load: "Callable[[Path], Answer]") -> None:
    """Register the model with MLflow, which is running the script that calls this.

    Args:
        load: Opens a checkpoint; what it returns is called with the numbers of its column and the directory
            of a store.
    """
    pyfunc = _import_pyfunc()
    # MLflow looks up the type hints of `predict`, so their names must exist.
    import pandas as pd
    from mlflow.models import set_model
    from mlflow.pyfunc.model import PythonModelContext

    class Classifier(pyfunc.PythonModel):  # type: ignore[misc, name-defined]
        def load_context(self, context: PythonModelContext) -> None:
            self._answer = load(Path(context.artifacts["checkpoint"]))

        def predict(
            self,
            context: PythonModelContext,
            model_input: pd.DataFrame,
            params: dict[str, str] | None = None,
        ) -> pd.DataFrame:
            return self._answer(list(model_input.iloc[:, 0]), (params or {}).get("store") or None)

    set_model(Classifier())


def _import_pyfunc() -> Any:
    with _without_own_warnings():
        from mlflow import pyfunc
    return pyfunc


@contextmanager
def _without_own_warnings() -> Iterator[None]:
    """Silence MLflow's warnings about itself: type hints at import, uses of pandas."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
