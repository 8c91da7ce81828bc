"""Places in a configuration: a path on this machine's disks, or the URI of an object store."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True)
class Uri:
    """A place that pyarrow's file systems serve, such as `s3://bucket/stores/genius?region=eu-west-1`."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Uri":
        place, mark, query = self.text.partition("?")
        return Uri(f"{place.rstrip('/')}/{name}{mark}{query}")

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.text.partition("?")[0].rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> "Uri":
        """The place that contains it."""
        place, mark, query = self.text.partition("?")
        return Uri(f"{place.rstrip('/').rpartition('/')[0]}{mark}{query}")


def parse_place(value: object) -> Path | Uri:
    """A path or a URI from its text; `file://` is a path.

    Raises:
        ValueError: If the URI has another scheme or carries credentials.
    """
    if isinstance(value, Path | Uri):
        return value
    if not isinstance(value, str):
        raise ValueError("Input should be a path or a URI")
    if "://" not in value:
        return Path(value)
    parts = urlsplit(value)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme not in _SCHEMES:
        raise ValueError("Input should be a path, or a URI that begins with s3://, gs:// or file://")
    if parts.password or (parts.username and parts.scheme == "s3"):
        raise ValueError(
            "Input should be a URI without a password; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in "
            "the environment instead"
        )
    return Uri(value)


def parse_uri(value: object) -> Uri:
    """A URI from its text.

    Raises:
        ValueError: If it is a path.
    """
    place = parse_place(value)
    if isinstance(place, Path):
        raise ValueError("Input should be a URI that begins with s3:// or gs://")
    return place


Place = Annotated[
    Path | Uri,
    PlainValidator(parse_place),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string"}),
]
RemotePlace = Annotated[
    Uri,
    PlainValidator(parse_uri),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[a-z]+://"}),
]
