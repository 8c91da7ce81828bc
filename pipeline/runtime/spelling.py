"""The nearest of several names, for errors that say what was probably meant."""

import difflib
from collections.abc import Iterable


def suggest(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """`did you mean 'sparse'?` where a name is like one of `names`, else `otherwise`."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean '{near[0]}'?" if near else otherwise
