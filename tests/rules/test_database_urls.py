"""URLs of PostgreSQL that name several servers."""

import pytest

from ltzd.rules.database_urls import each_server


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql:///ltzd", ("postgresql:///ltzd",)),
        ("postgresql://ltzd:a%2Cb@db/ltzd", ("postgresql://ltzd:a%2Cb@db/ltzd",)),
        (
            "postgresql://ltzd@one:5432,[::1]:5433/ltzd?target_session_attrs=primary",
            (
                "postgresql://ltzd@one:5432/ltzd?target_session_attrs=primary",
                "postgresql://ltzd@[::1]:5433/ltzd?target_session_attrs=primary",
            ),
        ),
    ],
)
def test_each_server_has_the_rest_of_the_url(url: str, servers: tuple[str, ...]) -> None:
    assert each_server(url) == servers
