"""The Python of cocn/README.md runs as it stands there."""

import re
from pathlib import Path

import torch

import cocn


def test_the_examples_run() -> None:
    page = (Path(cocn.__file__).parent / "README.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    torch.manual_seed(0)
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)  # noqa: S102 - our own page
    logits = names["logits"]
    assert isinstance(logits, torch.Tensor)
    assert logits.shape == (4, 2)
    assert isinstance(names["batch"], cocn.SegmentBatch)
