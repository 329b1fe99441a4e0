"""The server that an error of a connection names."""

import pytest

from ltzd.store.connection_errors import server_of


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("postgresql:///ltzd", "the database ltzd of this machine"),
        ("postgresql://ltzd@db.internal/ltzd", "the database ltzd at db.internal:5432"),
        ("postgresql://a:5432,b:5433/ltzd", "the database ltzd at a:5432 or b:5433"),
        ("postgresql:///ltzd?host=/run/postgresql", "the database ltzd at /run/postgresql"),
        ("postgresql://a:nonsense/ltzd", "the database"),
    ],
)
def test_the_server_is_named_as_far_as_the_url_tells(url: str, server: str) -> None:
    assert server_of(url) == server
