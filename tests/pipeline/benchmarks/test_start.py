"""The benchmark of the start waits for a first step, and says why there was none."""

from pathlib import Path

import pytest

from pipeline.benchmarks import start
from pipeline.runtime.errors import UserError


def test_a_training_that_fails_is_told_and_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Expected a first step \(got .*none"):
        start._time_first_step(tmp_path / "none", tmp_path / "out")
