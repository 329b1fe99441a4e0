"""URLs of PostgreSQL that name several servers."""

import pytest

from ltzd.rules.database_urls import each_server, session_attributes


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


@pytest.mark.parametrize(
    ("url", "attributes"),
    [
        ("postgresql://ltzd:target_session_attrs=any@one,two/prefer-standby", None),
        (
            "postgresql://one,two/ltzd?sslmode=require&target_session_attrs=prefer-standby",
            "prefer-standby",
        ),
    ],
)
def test_the_wanted_kind_of_session_is_a_parameter_of_the_url(
    url: str, attributes: str | None
) -> None:
    assert session_attributes(url) == attributes
