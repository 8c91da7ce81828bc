"""Passwords in addresses are used and never shown."""

import pytest

from pipeline.runtime.passwords import hide_passwords, without_password


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:secret@host:5000/x", "http://host:5000/x"),
        ("https://me@host", "https://host"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////tmp/a:b@c.db", "sqlite:////tmp/a:b@c.db"),
        ("postgresql://me:secret@host/db", "postgresql://me@host/db"),
        ("postgresql+psycopg://me:se/cr?et@host:5432/db", "postgresql+psycopg://me@host:5432/db"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me"),
        ("postgresql://host/db?password=secret&sslmode=require", "postgresql://host/db?sslmode=require"),
    ],
)
def test_an_address_without_its_password(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
    assert without_password(shown) == shown


@pytest.mark.parametrize(
    "address",
    [
        "http://me:secret@host:5000/api",
        "postgresql://me:se/cret@host/db",
        "mysql+pymysql://:secret@host/db",
        "postgresql://host/db?password=secret",
    ],
)
def test_a_message_with_an_address_in_it(address: str) -> None:
    told = hide_passwords(f"API request to '{address}' failed: no answer")
    assert "cret" not in told
    assert told.startswith("API request to '")
    assert told.endswith("' failed: no answer")


@pytest.mark.parametrize(
    "text", ["sqlite:////tmp/a@b.db is locked", "http://127.0.0.1:5000 is away", "write to me@host: now"]
)
def test_what_holds_no_password_stays(text: str) -> None:
    assert hide_passwords(text) == text
