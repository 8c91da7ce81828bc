"""Checks of the machine: what counts as a problem, and that checking leaves nothing behind."""

from pathlib import Path

import pytest

from pipeline.cluster import doctor
from pipeline.cluster.doctor import Check, check_disk, check_tracking, examine


def test_nothing_is_created_by_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    report = examine(output=tmp_path / "deep" / "runs")
    assert list(tmp_path.iterdir()) == []
    names = [check.name for check in report.checks]
    assert names == [
        "python",
        "packages",
        "device",
        "cores",
        "memory",
        "disk",
        "torch-sparse",
        "ray",
        "mlflow store",
    ]
    assert all(check.fix for check in report.checks if check.status != "ok")


def test_the_report_is_as_bad_as_its_worst_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise ImportError("libcudart.so.12: cannot open shared object file")

    broken.__name__ = "check_device"
    monkeypatch.setattr(doctor, "check_device", broken)
    report = examine()
    assert report.status == "problem"
    device = next(check for check in report.checks if check.name == "device")
    assert "libcudart" in device.detail


def test_a_full_disk_is_a_problem_with_a_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_NEEDED_GB", 1e9)
    check = check_disk(tmp_path)
    assert check.status == "problem"
    assert "--output" in check.fix


def test_a_broken_tracking_store_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "mlflow.db").write_bytes(b"not a database, but long enough to be read as one" * 50)
    check = check_tracking(tmp_path)
    assert check.status == "problem"
    assert str(tmp_path / "mlflow.db") in check.fix


def test_a_silent_server_is_a_warning_and_its_password_stays_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@127.0.0.1:9")
    check = check_tracking(tmp_path)
    assert check.status == "warning"
    assert "127.0.0.1:9" in check.detail
    assert "secret" not in check.detail
