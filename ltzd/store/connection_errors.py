"""Sentences that say why a connection to PostgreSQL failed, and to which server.

The texts hold no password and no row: a server's own text is used only for errors of connections.
"""

import os
import socket
import ssl
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg

from ltzd.errors import LtzdError
from ltzd.rules.database_urls import each_server
from ltzd.store.pooler import PoolerUrl

_DEFAULT_PORT = 5432
_STARTUP = "unsupported startup parameter"
"""The words of PgBouncer for a setting that PostgreSQL would take."""
_ANY_DATABASE = "the database"


def server_of(url: str) -> str:
    """`the database ltzd at db.internal:5432`, or at `a:5432 or b:5432`, as the URL tells."""
    try:
        parts = urlsplit(url)
        servers = [_host_of(each) for each in each_server(url)]
    except ValueError:
        return _ANY_DATABASE
    name = unquote(parts.path.lstrip("/"))
    named = f"{_ANY_DATABASE} {name}" if name else _ANY_DATABASE
    hosts = parse_qs(parts.query).get("host") or [server for server in servers if server]
    return f"{named} at {' or '.join(hosts)}" if hosts else f"{named} of this machine"


def _host_of(url: str) -> str | None:
    parts = urlsplit(url)
    return _netloc(parts.hostname, parts.port) if parts.hostname else None


def user_of(url: str) -> str | None:
    try:
        name = urlsplit(url).username
    except ValueError:
        return None
    return unquote(name) if name else None


def _netloc(host: str, port: int | None) -> str:
    return f"{f'[{host}]' if ':' in host else host}:{port or _DEFAULT_PORT}"


def reason_of(error: BaseException) -> str:
    """The reason as the end of a sentence, such as `the connection was refused`."""
    if isinstance(error, LtzdError):
        return error.message
    if isinstance(error, asyncpg.PostgresError):
        return _reason_of_server(error)
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, socket.gaierror):
        return "its name cannot be resolved"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or 'no certificate was accepted'})"
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"there is no {error.filename}"
    if isinstance(error, OSError):
        return _reason_of_system(error)
    return "the connection was closed"


def _reason_of_server(error: asyncpg.PostgresError) -> str:
    if isinstance(error, asyncpg.TransactionRollbackError):
        return f"a conflict with another transaction ({error.sqlstate})"
    text = str(getattr(error, "message", None) or error).partition("\n")[0].rstrip(".")
    return f"{text} ({error.sqlstate})" if error.sqlstate else text


def _reason_of_system(error: OSError) -> str:
    if error.errno is not None:
        return os.strerror(error.errno).lower()
    # asyncio raises one error for all addresses of a host, with their texts.
    return "the connection was refused" if "Multiple" in str(error) else "the connection broke"


def refusal_of(error: BaseException, url: str) -> str:
    """The sentence for a server that answers and refuses, or for a malformed URL."""
    server, user = server_of(url), user_of(url) or "of the process"
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        name = unquote(urlsplit(url).path.lstrip("/"))
        return (
            f"{_capital(server)} does not exist (3D000): create it (CREATE DATABASE "
            f'"{name}" OWNER "{user}"), or correct database_url.'
        )
    if isinstance(error, asyncpg.InvalidPasswordError):
        return (
            f"{_capital(server)} refuses the password of the user {user} (28P01): correct "
            "database_url, or the file that its passfile= names."
        )
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return (
            f"{_capital(server)} refuses the user {user} (28000): create the user (CREATE ROLE), "
            "admit it in pg_hba.conf, or correct database_url."
        )
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return (
            f"{_capital(server)} refuses the user {user} (42501): run GRANT CONNECT ON DATABASE, "
            "or correct database_url."
        )
    if isinstance(error, asyncpg.ObjectNotInPrerequisiteStateError):
        return (
            f"{_capital(server)} refuses all connections (55000): run ALTER DATABASE … "
            "ALLOW_CONNECTIONS true, or correct database_url."
        )
    return "database_url cannot be used: it must be a URL as libpq takes it; correct it."


def lacks_privilege(error: asyncpg.InsufficientPrivilegeError, url: str) -> str:
    """The sentence for a statement that PostgreSQL refuses to the user of this URL."""
    user = user_of(url) or "of the process"
    return (
        f"The user {user} lacks a privilege in {server_of(url)}: {reason_of(error)}. Connect as "
        "the user that owns ltzd's tables, or grant this one the same privileges; after a restore "
        "the tables may belong to another user."
    )


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def behind_pooler(url: str) -> str:
    """The sentence for a direct URL that leads to a pooler."""
    return (
        f"{_capital(server_of(url))} is behind a pooler, which drops the settings of ltzd's "
        "sessions: give the address of PostgreSQL itself. Only [database] pooled_url may lead to "
        "a pooler."
    )


def no_answer(error: BaseException, url: str) -> str:
    is_refused_setting = isinstance(error, asyncpg.ProtocolViolationError) and _STARTUP in str(
        error
    )
    if is_refused_setting and not isinstance(url, PoolerUrl):  # else the URL itself names a setting
        return behind_pooler(url)
    return f"{_capital(server_of(url))} does not answer: {reason_of(error)}"
