"""Finds the servers of `ltzd run` by its settings file."""

from dataclasses import dataclass, field
from pathlib import Path

from ltzd.daemon.settings.listener import ListenerSettings
from ltzd.daemon.settings.settings import read_settings

_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - asked for, not listened on


@dataclass(frozen=True, slots=True)
class AdminTarget:
    """`allows_plain_http` says whether the settings let the token travel unencrypted."""

    url: str
    token: str | None = field(repr=False)
    allows_plain_http: bool
    database_url: str = field(repr=False)


def admin_target(config: Path) -> AdminTarget:
    """Raises Misconfigured."""
    settings = read_settings(config)
    admin = settings.admin
    token = admin.token()
    return AdminTarget(
        url_of(admin),
        None if token is None else token.get_secret_value(),
        admin.plain_http,
        settings.database_url.get_secret_value(),
    )


def url_of(listener: ListenerSettings) -> str:
    """The URL on this machine; a server that listens on all addresses is asked by loopback."""
    host = _ANY_ADDRESS.get(listener.host, listener.host)
    shown_host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"{'https' if listener.has_tls else 'http'}://{shown_host}:{listener.port}"
