"""What a race remembers between two calls: which trainings started but never ended."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pipeline.storage.files import atomic_file

#: A training that was killed this many times is not started again.
MOST_KILLS = 2


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    begun: dict[str, int] = {}
    """How many times a training started without ending, by model and split."""


class Attempts:
    """A file that counts the trainings killed by the system: one that runs out of memory cannot report it.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.read_text(encoding="utf-8") if path.exists() else "{}"
        self._begun = dict(_Content.model_validate_json(found).begun)

    def is_hopeless(self, name: str) -> bool:
        """Whether a training was killed too often to be started again."""
        return self._begun.get(name, 0) >= MOST_KILLS

    def begin(self, name: str) -> None:
        """Record that a training starts."""
        self._begun[name] = self._begun.get(name, 0) + 1
        self._write()

    def end(self, name: str) -> None:
        """Record that a training ended, with success or an error: it was not killed."""
        self._begun.pop(name, None)
        self._write()

    def _write(self) -> None:
        with atomic_file(self._path) as file:
            file.write(_Content(begun=self._begun).model_dump_json().encode())
