"""The nearest of several names."""

from pipeline.runtime.spelling import suggest


def test_a_near_name_is_suggested_and_a_far_one_is_not() -> None:
    names = ("sparse", "segment", "expanded")
    assert suggest("sparce", names) == "did you mean 'sparse'?"
    assert suggest("zebra", names, "see the list") == "see the list"
