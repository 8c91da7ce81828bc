"""A model that an earlier version logged still loads, and predicts as it did then.

The files under `data/logged-model` were written when `pipeline/` had no sub-packages: their script imports
`pipeline.serving` and `pipeline.tracking`.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pipeline.config.settings import SourceOptions
from pipeline.features.arrangement import write_arrangement
from pipeline.ingest.stage import ingest

LOGGED = Path(__file__).parent / "data" / "logged-model"
#: What `cocn predict` of the version that logged the model said about the first three graphs.
EXPECTED = [[0.298230, 0.272744, 0.429026], [0.331016, 0.259964, 0.409020], [0.304202, 0.312478, 0.383320]]


def test_a_model_of_an_earlier_version_answers_as_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_PICKLE_DESERIALIZATION", "false")
    store = ingest(SourceOptions(source="motifs", num_graphs=60), tmp_path / "store").store
    write_arrangement(store, 4)
    model = mlflow.pyfunc.load_model(str(LOGGED))
    answers = model.predict(pd.DataFrame({"graph": np.arange(3)}), params={"store": str(store.path)})
    found = answers[["probability_0", "probability_1", "probability_2"]].to_numpy()
    np.testing.assert_allclose(found, EXPECTED, atol=1e-4)


def test_its_files_hold_no_path_of_the_machine_that_made_it() -> None:
    for path in LOGGED.rglob("*"):
        if path.is_file() and path.suffix != ".safetensors":
            assert "/tmp" not in path.read_text(), path  # noqa: S108
