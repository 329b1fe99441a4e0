"""Puts the host site together: users, log-ins, REST API, demo pages and the control endpoint.

The site has a journal of its own, whose first record is the secret that signs cookies and nonces.
"""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

from aiohttp import web

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    text_in,
)
from ltzd.dev.sandbox.site.api import REST_PREFIX, SiteApi
from ltzd.dev.sandbox.site.demo_pages import DemoSite
from ltzd.dev.sandbox.site.demo_proxy import NAMESPACE, DemoSiteProxy
from ltzd.dev.sandbox.site.sessions import SiteSessions
from ltzd.dev.sandbox.site.users import (
    DEMO_USERNAME,
    HOST,
    SiteUsers,
    display_password,
    is_username,
)
from ltzd.errors import Misconfigured

CONTROL_PATH = "/doors/site-session"

_MAX_USERNAME_LENGTH = 60

WalletOf = Callable[[str], Awaitable[str]]
"""Returns the wallet of an e-mail address, which the identity provider creates if needed."""


class HostSite:
    def __init__(self, journal: Journal, users: SiteUsers, sessions: SiteSessions) -> None:
        self._journal = journal
        self._users = users
        self._sessions = sessions
        self._proxy = DemoSiteProxy()

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Raises Misconfigured."""
        journal, records = Journal.open(path)
        try:
            secret, users = await _restore(journal, records)
            await users.create_demo_user()
        except BaseException:
            await journal.close()
            raise
        return cls(journal, users, SiteSessions(secret, users))

    def routes(self, wallet_of: WalletOf) -> list[web.RouteDef]:
        async def control(request: web.Request) -> web.Response:
            return await self._handle_control(request, wallet_of)

        return [
            *DemoSite(self._users, self._sessions).routes(),
            *self._proxy.routes(),
            *SiteApi(self._users, self._sessions).routes(),
            web.post(CONTROL_PATH, control),
        ]

    def set_ltzd_url(self, url: str) -> None:
        """Set where the loyalty routes lead; before that they answer 503."""
        self._proxy.set_ltzd_url(url)

    def section(self) -> dict[str, str]:
        """The `site` part of dev.json."""
        user = self._users.by_username(DEMO_USERNAME)
        assert user is not None
        assert user.application_password is not None
        return {
            "host": HOST,
            "restPrefix": REST_PREFIX,
            "namespace": NAMESPACE,
            "username": user.username,
            "applicationPassword": display_password(user.application_password),
        }

    async def close(self) -> None:
        await self._proxy.close()
        await self._journal.close()

    async def _handle_control(self, request: web.Request, wallet_of: WalletOf) -> web.Response:
        """POST {"username", "emailConfirmed"?}: logs a user in, after registering a new one.

        `emailConfirmed` is the confirmation state that the site reports from now on; "absent" plays
        a site without ltzd's plugin, which reports none. By default the site reports none until the
        user's address changes, and then reports the new one as unconfirmed.
        """
        body = await control_body(request)
        allow_only(body, "username", "emailConfirmed")
        confirmed = _confirmed_in(body)
        username = text_in(body, "username", longest=_MAX_USERNAME_LENGTH)
        if not is_username(username):
            raise BadInputError("username", "may hold letters, digits, inner spaces and _ . @ -")
        user = await self._users.find_or_create(username)
        if "emailConfirmed" in body:
            user = await self._users.set_confirmed(user, confirmed)
        session = self._sessions.open(user)
        return json_reply(
            {
                "cookie": self._sessions.cookie_header(session),
                "nonce": self._sessions.nonce(session),
                "username": user.username,
                "email": user.email,
                "walletAddress": await wallet_of(user.email),
            }
        )


def _confirmed_in(body: Body) -> bool | None:
    confirmed = body.get("emailConfirmed", "absent")
    if isinstance(confirmed, bool):
        return confirmed
    if confirmed != "absent":
        raise BadInputError("emailConfirmed", 'must be true, false or "absent"')
    return None


async def _restore(journal: Journal, records: list[Record]) -> tuple[bytes, SiteUsers]:
    """Read the journal; a new journal gets a new secret as its first record."""
    users = SiteUsers(journal)
    if not records:
        secret = secrets.token_bytes(32)
        await journal.wait_durable(journal.append({"kind": "site", "secret": secret.hex()}))
        return secret, users
    try:
        for record in records[1:]:
            users.apply_record(record)
        return bytes.fromhex(str(records[0]["secret"])), users
    except (KeyError, ValueError, TypeError) as error:
        raise Misconfigured(
            "The sandbox's host site is damaged; start once with --clean to create a new one."
        ) from error
