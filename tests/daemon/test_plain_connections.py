"""A warning names every unencrypted connection to another machine, and no other."""

from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from ltzd.daemon.plain_connections import plain_clients, plain_listeners, warn_of_plain_connections
from ltzd.daemon.settings.settings import (
    AdminSettings,
    DatabaseSettings,
    HttpSettings,
    NodeSettings,
    Settings,
)


def settings_with(
    database_url: str = "postgresql:///ltzd",
    redis_url: str | None = None,
    pooled_url: str | None = None,
    rpc_url: str = "http://127.0.0.1:8545",
    http: HttpSettings | None = None,
    roles: tuple[str, ...] = ("http",),
) -> Settings:
    return cast(
        "Settings",
        SimpleNamespace(
            database_url=SecretStr(database_url),
            database=DatabaseSettings(
                pooled_url=None if pooled_url is None else SecretStr(pooled_url)
            ),
            redis_url=None if redis_url is None else SecretStr(redis_url),
            node=NodeSettings(rpc_url=SecretStr(rpc_url)),
            http=http or HttpSettings(),
            admin=AdminSettings(),
            roles=roles,
        ),
    )


def test_a_pooler_that_may_be_asked_without_tls_is_named() -> None:
    settings = settings_with(pooled_url="postgresql://ltzd@pooler.internal:6432/ltzd")
    assert list(plain_clients(settings)) == ["database.pooled_url"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ltzd@db.internal/ltzd",
        "postgres://ltzd@203.0.113.7/ltzd?sslmode=disable",
        "postgresql://db.internal/ltzd?sslmode=prefer",
        "postgresql:///ltzd?host=db.internal",
        "postgresql://127.0.0.1:5432,db.internal:5432/ltzd",
    ],
)
def test_a_database_that_may_be_asked_without_tls_is_named(url: str) -> None:
    assert list(plain_clients(settings_with(url))) == ["database_url"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///ltzd",
        "postgresql://127.0.0.1/ltzd",
        "postgresql://127.0.0.1:5432,127.0.0.1:5433/ltzd",
        "postgresql://one.internal,two.internal:5433/ltzd?sslmode=require",
        "postgresql://localhost/ltzd?sslmode=disable",
        "postgresql://%2Frun%2Fpostgresql/ltzd",
        "postgresql:///ltzd?host=/run/postgresql",
        "postgresql://db.internal/ltzd?sslmode=require",
        "postgresql://db.internal/ltzd?sslmode=verify-full",
    ],
)
def test_a_database_on_this_machine_or_over_tls_is_not_named(url: str) -> None:
    assert list(plain_clients(settings_with(url))) == []


@pytest.mark.parametrize(
    ("redis_url", "rpc_url", "names"),
    [
        ("redis://cache.internal", "http://127.0.0.1:8545", ["redis_url"]),
        ("redis://127.0.0.1", "http://node.internal", ["node.rpc_url"]),
        ("redis://h", "http://10.0.0.1:8545", ["redis_url", "node.rpc_url"]),
        ("rediss://cache.internal", "https://node.example/key", []),
        ("unix:///run/redis.sock", "http://[::1]:8545", []),
        (None, "http://localhost:8545", []),
    ],
)
def test_redis_and_node_are_named_where_another_machine_is_asked_plainly(
    redis_url: str | None, rpc_url: str, names: list[str]
) -> None:
    assert list(plain_clients(settings_with(redis_url=redis_url, rpc_url=rpc_url))) == names


def test_an_open_address_is_named_only_by_the_process_that_serves_it() -> None:
    http = HttpSettings(host="0.0.0.0", plain_http=True)

    assert list(plain_listeners(settings_with(http=http))) == ["http"]
    assert list(plain_listeners(settings_with(http=http, roles=("indexer",)))) == []
    assert list(plain_listeners(settings_with(http=HttpSettings(plain_http=True)))) == []


def test_warnings_name_settings_and_no_url() -> None:
    http = HttpSettings(host="0.0.0.0", plain_http=True)
    with capture_logs() as lines:
        warn_of_plain_connections(settings_with("postgresql://u:hunter2@db/ltzd", http=http))

    assert [line["setting"] for line in lines] == ["http.plain_http", "database_url"]
    assert {line["log_level"] for line in lines} == {"warning"}
    assert "hunter2" not in str(lines)
