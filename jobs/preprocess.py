"""`python -m jobs.preprocess CONFIG`: the pre-computation as a job of a cluster."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jobs.output import to_json
from pipeline.config import load_config
from pipeline.errors import UserError


def main(arguments: Sequence[str]) -> int:
    """Prepare the graph of a configuration file; the last line of output is the result as JSON."""
    if len(arguments) != 1:
        print("usage: python -m jobs.preprocess CONFIG", file=sys.stderr)  # noqa: T201
        return 2
    from pipeline.ingest import options_from
    from pipeline.prepare import prepare

    try:
        config = load_config(Path(arguments[0]))
        result = prepare(config, options_from(config.data), say=_say)
    except UserError as error:
        _say(f"jobs.preprocess: {error}")
        return 2
    print(to_json(result), flush=True)  # noqa: T201
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
