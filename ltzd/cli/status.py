"""`ltzd status`: shows the admin server's `/status` as a table or as JSON, once or every second."""

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ltzd.cli.output import page_width
from ltzd.cli.status_page import page
from ltzd.errors import Misconfigured, Unavailable
from ltzd.http.loopback import is_loopback

TIMEOUT_SECONDS = 10.0


def status(
    admin_url: str,
    follow: bool,
    as_json: bool,
    token: str | None = None,
    *,
    plain_http: bool = False,
    database_url: str | None = None,
    period_seconds: float = 1.0,
) -> None:
    """Print the status; with `follow` every `period_seconds` until Ctrl-C.

    With `database_url` the database tells it while no admin server answers.
    Raises Unavailable, Misconfigured.
    """
    if token is not None and not plain_http:
        _require_encryption(admin_url)
    with suppress(KeyboardInterrupt):
        source = StatusSource(admin_url.rstrip("/"), database_url)
        asyncio.run(_show(source, follow, as_json, token, period_seconds))


def _require_encryption(admin_url: str) -> None:
    parts = urlsplit(admin_url)
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise Misconfigured(
            f"The token would go to {admin_url} unencrypted: use https://, or give --plain-http."
        )


@dataclass(frozen=True, slots=True)
class StatusSource:
    """An admin server, and the database to read from if this server does not answer."""

    admin_url: str
    database_url: str | None = field(default=None, repr=False)

    async def read(self, session: aiohttp.ClientSession) -> dict[str, Any]:
        """Raises Unavailable, Misconfigured."""
        try:
            return await fetch(session, self.admin_url)
        except Unavailable as error:
            if self.database_url is None:
                raise
            # Importing the HTTP server takes half a second.
            from ltzd.cli import status_of_database  # noqa: PLC0415

            try:
                return await status_of_database.read(self.database_url)
            except Unavailable as second:
                raise Unavailable(f"{error.message} {second.message}") from second


async def _show(
    source: StatusSource, follow: bool, as_json: bool, token: str | None, period_seconds: float
) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
        facts = await source.read(session)
        if as_json:
            await _print_lines(session, source, facts, period_seconds if follow else None)
        elif follow and sys.stdout.isatty():
            await _refresh(session, source, facts, period_seconds)
        elif follow:
            await _print_pages(session, source, facts, period_seconds)
        else:
            Console(width=page_width()).print(page(facts))


async def fetch(session: aiohttp.ClientSession, admin_url: str) -> dict[str, Any]:
    try:
        async with session.get(f"{admin_url}/status") as answer:
            if answer.status in {401, 403}:
                raise Misconfigured(
                    f"{admin_url} refused the request ({answer.status}): give --admin-token-file, "
                    "or use a loopback URL on that machine."
                )
            facts = msgspec.json.decode(await answer.read()) if answer.status == 200 else None
    except aiohttp.ClientConnectorCertificateError as error:
        raise Misconfigured(
            f"The certificate of {admin_url} is not trusted: name the file of its issuer's "
            "certificate in the variable SSL_CERT_FILE."
        ) from error
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise Unavailable(
            f"Nothing answers at {admin_url}. Check that ltzd runs and that this is its admin "
            "address."
        ) from error
    if not isinstance(facts, dict) or "version" not in facts:
        raise Unavailable(f"The server at {admin_url} is not an ltzd admin server.")
    return facts


async def _print_lines(
    session: aiohttp.ClientSession,
    source: StatusSource,
    facts: dict[str, Any],
    period_seconds: float | None,
) -> None:
    """Print a line every period, or one line without a period."""
    while True:
        print(msgspec.json.encode(facts).decode(), flush=True)
        if period_seconds is None:
            return
        await asyncio.sleep(period_seconds)
        facts = await source.read(session)


async def _print_pages(
    session: aiohttp.ClientSession,
    source: StatusSource,
    facts: dict[str, Any],
    period_seconds: float,
) -> None:
    """Print one page after the other, for a pipe or a file that cannot be redrawn."""
    console = Console(width=page_width())
    while True:
        console.print(page(facts), "")
        sys.stdout.flush()
        await asyncio.sleep(period_seconds)
        facts = await source.read(session)


async def _refresh(
    session: aiohttp.ClientSession,
    source: StatusSource,
    facts: dict[str, Any],
    period_seconds: float,
) -> None:
    """Redraw the page every period, also while the server restarts."""
    with Live(page(facts), console=Console(file=sys.stdout), auto_refresh=False) as live:
        while True:
            await asyncio.sleep(period_seconds)
            try:
                facts = await source.read(session)
                live.update(page(facts), refresh=True)
            except Unavailable as error:
                live.update(Group(page(facts), Text(error.message, style="red")), refresh=True)
