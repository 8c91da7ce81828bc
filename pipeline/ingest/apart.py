"""Files that only C libraries can read: in a separate process, since a damaged file may crash it."""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.runtime.errors import UserError
from pipeline.runtime.provenance import SOURCE

Kind = Literal["mat", "nkb"]
READ_SECONDS = 3600
WRONG = 2


def read_apart(kind: Kind, path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a .mat or networkit binary file.

    Raises:
        UserError: If it cannot be read, or its reader crashes.
    """
    with tempfile.TemporaryDirectory(prefix="cocn-") as directory:
        out = Path(directory) / "arrays.npz"
        command = [sys.executable, "-W", "ignore", "-m", __name__, kind, str(path.absolute()), str(out)]
        done = subprocess.run(
            command, cwd=SOURCE, capture_output=True, text=True, timeout=READ_SECONDS, check=False
        )
        if done.returncode == 0:
            with np.load(out, allow_pickle=False) as content:
                return {name: content[name] for name in content.files}
    lines = done.stderr.strip().splitlines()
    crashed = f"one that crashes its reader with code {done.returncode}"
    reason = lines[-1] if done.returncode == WRONG and lines else crashed
    raise UserError(f"Expected '{path}' to be a complete .{kind} file (got {reason})")


def _read_mat(path: str) -> dict[str, NDArray[Any]]:
    from scipy.io import loadmat

    content = loadmat(path)
    if not {"A", "local_info"} <= content.keys():
        names = ", ".join(name for name in content if not name.startswith("__"))
        raise ValueError(f"{names or 'nothing'} instead of 'A' and 'local_info'")
    matrix = content["A"].tocoo()
    return {"row": matrix.row, "column": matrix.col, "info": content["local_info"].astype(np.int64)}


def _read_networkit(path: str) -> dict[str, NDArray[Any]]:
    from pipeline.ingest.networkit_graphs import read_binary

    size, (rows, columns) = read_binary(path)
    return {"row": rows, "column": columns, "size": np.array(size)}


def main(kind: str, path: str, out: str) -> int:
    """Read a file and write its arrays; an error becomes one line."""
    try:
        arrays = _read_mat(path) if kind == "mat" else _read_networkit(path)
    except Exception as error:  # noqa: BLE001 - libraries raise all kinds of errors on damaged files
        sys.stderr.write(" ".join(str(error).split())[:300] + "\n")
        return WRONG
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
