"""The benchmark of tracking completes and measures what it claims."""

import pytest

from pipeline.benchmarks.tracking import run


def test_every_number_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    found = run(steps=20, rounds=1, log_every=5, segment_steps=1)
    assert found.steps == 20
    assert found.plain_step_ms > 0
    assert found.segment_step_ms > 0
    assert found.segment_call_percent == pytest.approx(found.log_call_us / found.segment_step_ms / 10)
