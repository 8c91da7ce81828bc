"""The closest of several names, for errors that suggest what was probably meant."""

import difflib
from collections.abc import Iterable


def suggest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """`did you mean 'sparse'?` if a name resembles one of `names`, else `otherwise`."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean '{near[0]}'?" if near else otherwise
