"""How a cluster's answers are judged."""

import pytest

from pipeline.cluster.survey import (
    NodeReport,
    check_authentication,
    check_gpus,
    check_storage,
    check_versions,
)

HERE = {"python": "3.11.7", "ray": "2.60.0"}


def node(**changes: object) -> NodeReport:
    values: dict[str, object] = {
        "name": "a",
        "versions": HERE,
        "gpus_promised": 0,
        "gpus_found": 0,
        "torch_has_cuda": False,
        "sees_output": True,
    }
    return NodeReport.model_validate({**values, **changes})


@pytest.mark.parametrize(
    ("other", "status", "detail"),
    [
        (HERE, "ok", "the same on 2 nodes and here"),
        ({**HERE, "ray": "2.55.0"}, "problem", "ray 2.55.0, 2.60.0"),
        ({"python": "3.11.7"}, "problem", "ray 2.60.0, missing"),
    ],
)
def test_versions_differ_between_nodes(other: dict[str, str], status: str, detail: str) -> None:
    check = check_versions((node(), node(name="b", versions=other)), HERE)
    assert (check.status, check.detail) == (status, detail)


def test_versions_differ_from_this_machine() -> None:
    check = check_versions((node(),), {**HERE, "python": "3.12.1"})
    assert (check.status, check.detail) == ("problem", "python 3.11.7 there, 3.12.1 here")


@pytest.mark.parametrize(
    ("promised", "found", "cuda", "status"),
    [
        (0, 0, False, "ok"),
        (4, 4, True, "ok"),
        (4, 0, True, "problem"),
        (4, 4, False, "problem"),
        (0, 2, True, "warning"),
    ],
)
def test_gpus(promised: int, found: int, cuda: bool, status: str) -> None:
    report = node(gpus_promised=promised, gpus_found=found, torch_has_cuda=cuda)
    check = check_gpus((node(), report))
    assert check.status == status
    assert (check.fix == "") == (status == "ok")


def test_storage_that_is_not_shared_or_not_writable_is_a_problem() -> None:
    assert check_storage((node(), node(name="b")), "/shared").status == "ok"
    apart = check_storage((node(), node(name="b", sees_output=False)), "/shared")
    assert (apart.status, apart.detail) == ("problem", "b does not see /shared")
    refused = check_storage((node(write_problem="Permission denied"),), "/shared")
    assert refused.detail == "cannot write to /shared: a (Permission denied)"


def test_a_job_api_without_a_token() -> None:
    assert check_authentication(False, (), "http://127.0.0.1:8265").status == "ok"
    assert check_authentication(True, (), "http://127.0.0.1:8265").status == "warning"
    outside = check_authentication(True, ("http://192.0.2.7:8265",), "http://127.0.0.1:8265")
    assert outside.status == "problem"
    assert "http://192.0.2.7:8265" in outside.detail
