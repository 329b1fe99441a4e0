"""Puts the OAuth providers of the sandbox together, with a journal of their own."""

from pathlib import Path
from typing import Self

from aiohttp import web

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.dev.sandbox.oauth.account_store import AccountStore
from ltzd.dev.sandbox.oauth.api_by_id import GITHUB, GOOGLE, TELEGRAM, TWITTER, ByIdApi
from ltzd.dev.sandbox.oauth.api_clients import INSTAGRAM, SPOTIFY, SPOTIFY_TOKEN, TIKTOK, ClientsApi
from ltzd.dev.sandbox.oauth.api_discord import API, LEVELS, DiscordApi
from ltzd.dev.sandbox.oauth.control import AccountControl
from ltzd.dev.sandbox.oauth.credentials import CLIENT_ID, INSTAGRAM_USER, AccountCredentials
from ltzd.errors import Misconfigured
from ltzd.providers.oauth import policy as access
from ltzd.providers.oauth.policy import AccountLookupPolicy

CONTROL_PATH = "/doors/accounts"


class AccountApis:
    def __init__(
        self, journal: Journal, credentials: AccountCredentials, store: AccountStore
    ) -> None:
        self._journal = journal
        self._credentials = credentials
        self._store = store
        self._clients = ClientsApi(store, credentials)

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Raises Misconfigured."""
        journal, records = Journal.open(path)
        try:
            return cls(journal, *await _restore(journal, records))
        except BaseException:
            await journal.close()
            raise

    async def close(self) -> None:
        await self._journal.close()

    def routes(self) -> list[web.RouteDef]:
        return [
            *DiscordApi(self._store, self._credentials).routes(),
            *ByIdApi(self._store, self._credentials).routes(),
            *self._clients.routes(),
            web.post(CONTROL_PATH, AccountControl(self._store).handle),
        ]

    def policy(self, url: str) -> AccountLookupPolicy:
        """ltzd's policy; missing accounts are not cached, so that changes apply at once."""
        of = self._credentials.of
        return AccountLookupPolicy(
            discord=access.DiscordAccess(of["discord"], url + API),
            twitter=access.TwitterAccess(of["twitter"], url + TWITTER),
            github=access.GithubAccess(of["github"], url + GITHUB),
            google=access.GoogleAccess(of["google"], url + GOOGLE),
            telegram=access.TelegramAccess(of["telegram"], url + TELEGRAM),
            spotify=access.SpotifyAccess(
                CLIENT_ID, of["spotify"], True, url + SPOTIFY, url + SPOTIFY_TOKEN
            ),
            instagram=access.InstagramAccess(INSTAGRAM_USER, of["instagram"], url + INSTAGRAM),
            tiktok=access.TiktokAccess(CLIENT_ID, of["tiktok"], url + TIKTOK),
            missing_seconds=0.0,
        )

    def revoke_client_tokens(self) -> None:
        """End all client tokens, as the providers may at any time."""
        self._clients.spotify_tokens.revoke_all()
        self._clients.tiktok_tokens.revoke_all()


def levels_url(url: str) -> str:
    """The URL template of a level, with {guild_id} and {user_id} as placeholders."""
    return f"{url}{LEVELS}/{{guild_id}}/{{user_id}}"


async def _restore(
    journal: Journal, records: list[Record]
) -> tuple[AccountCredentials, AccountStore]:
    """Read the journal; a new journal gets new credentials as its first record."""
    store = AccountStore(journal)
    if not records:
        credentials = AccountCredentials.new()
        await journal.wait_durable(journal.append(credentials.as_record()))
        return credentials, store
    try:
        for record in records[1:]:
            store.apply_record(record)
        return AccountCredentials.from_record(records[0]), store
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(
            "The sandbox's data directory is damaged; start once with --clean to create a new one."
        ) from error
