"""Passwords in addresses: used to connect, never written down or shown."""

import re
from urllib.parse import urlsplit

_HIDDEN = "***"
#: User, password and host of an address anywhere in a text; a path with an @ has a slash before it.
_IN_TEXT = re.compile(r"(\w://)[^\s'\"/@:]*:[^\s'\"@]*@")
_IN_QUERY = re.compile(r"(?<=[?&])(password=)[^&\s'\"]*")
_IN_DATABASE = re.compile(r"^([\w+.-]+://[^:/@]*):[^@]*@")


def without_password(uri: str) -> str:
    """The URI as it may be written to disk and shown.

    A database keeps its user name, since PGPASSWORD goes with it. A server loses its user name too: left in
    the address, it would be sent instead of MLFLOW_TRACKING_USERNAME.
    """
    uri = re.sub(r"(?<=[?&])password=[^&]*&?", "", uri).rstrip("?&")
    if not uri.startswith("http"):
        return _IN_DATABASE.sub(r"\1@", uri)
    place = urlsplit(uri).netloc
    return uri.replace(place, place.rpartition("@")[2], 1)


def hide_passwords(text: str) -> str:
    """The message with the password of every address hidden."""
    return _IN_QUERY.sub(rf"\1{_HIDDEN}", _IN_TEXT.sub(rf"\1{_HIDDEN}@", text))
