"""What a race remembers between two calls: which trainings began and never ended."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.storage.files import atomic_file

#: A training that was killed this often is not begun again.
MOST_KILLS = 2


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    begun: dict[str, int] = {}
    """How often a training began without an end, by model and split."""


class Attempts:
    """A file that counts the trainings that the system killed: whoever runs out of memory cannot say so.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.read_text(encoding="utf-8") if path.exists() else "{}"
        self._begun = dict(_Content.model_validate_json(found).begun)

    def is_hopeless(self, name: str) -> bool:
        """Whether a training was killed too often to be begun again."""
        return self._begun.get(name, 0) >= MOST_KILLS

    def begin(self, name: str) -> None:
        """Note that a training begins."""
        self._begun[name] = self._begun.get(name, 0) + 1
        self._write()

    def end(self, name: str) -> None:
        """Note that a training ended, well or not: it was not killed."""
        self._begun.pop(name, None)
        self._write()

    def _write(self) -> None:
        with atomic_file(self._path) as file:
            file.write(_Content(begun=self._begun).model_dump_json().encode())
