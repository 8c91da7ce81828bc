"""The examples of the package READMEs run as they stand, one after the other in an empty directory."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from jobs import cli

ROOT = Path(__file__).resolve().parents[1]
MOST_LINES = 40
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def examples(file: str, heading: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks below a heading, up to the next one of its level."""
    text = (ROOT / file).read_text(encoding="utf-8")
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    (found,) = [part for part in section if part.startswith(heading)]
    return [(match[1], match[2]) for match in BLOCK.finditer(found)]


def run(language: str, text: str) -> None:
    if language == "python":
        exec(compile(text, "example", "exec"), {"__name__": "example"})  # noqa: S102 - our own README
        return
    for line in text.splitlines():
        command, *words = shlex.split(line)
        assert command == "cocn"
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert not caught.value.code, line


@pytest.mark.parametrize(
    ("file", "heading"), [("cocn/README.md", "Example"), ("pipeline/README.md", "Examples")]
)
def test_examples_run(
    file: str,
    heading: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local_ray: None,
    tracking_database: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    shutil.copy(tracking_database, tmp_path / "runs" / "mlflow.db")
    found = examples(file, heading)
    assert found
    for language, text in found:
        assert text.count("\n") <= MOST_LINES
        run(language, text)
