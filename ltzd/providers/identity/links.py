"""The wallets and accounts of the identity provider's users, cached for a while.

Raises IdentityUnavailable when neither the provider nor a fresh enough cache entry can tell.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from cachetools import LRUCache

from ltzd.concurrency.clock import Clock
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.concurrency.work_slots import released_when_slow
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.accounts import accounts_in, emails_in
from ltzd.providers.identity.answers import (
    ethereum_wallets,
    first_wallet,
    is_subject,
    rows_in,
)
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.identity.users import IdentityUser, UserProfile
from ltzd.providers.outbound.http_client import MalformedAnswerError
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

FRESH_SECONDS = 60.0
"""How long an entry is used without asking; what a user unlinks stays linked here as long."""
STALE_SECONDS = 3600.0
"""How old a wallet may be while the provider is away: as old as the user's token can get.

Accounts and addresses may not: a caller that acts on them joins two names permanently.
"""
UNKNOWN_WALLET_SECONDS = 3.0
"""The least age of an entry that is read again for a wallet that it does not list."""
FAILURE_PAUSE_SECONDS = 15.0
"""No request for so long after a failure, if the entry will do: a slow provider delays users."""


@dataclass(frozen=True, slots=True)
class UserLinks:
    """`home` is the wallet that rewards go to: the embedded one with the lowest index."""

    wallets: tuple[Address, ...] = ()
    accounts: tuple[OAuthAccount, ...] = ()
    emails: tuple[str, ...] = field(default=(), repr=False)
    home: Address | None = None


class _CachedLinks(msgspec.Struct):
    links: UserLinks
    read_at: float
    failed_at: float = float("-inf")

    def is_fresh(self, now: float) -> bool:
        return now - self.read_at < FRESH_SECONDS

    def may_answer(self, wanted: Address | None, now: float) -> bool:
        if self._lists(wanted):
            return self.is_fresh(now)
        return now - self.read_at < UNKNOWN_WALLET_SECONDS

    def may_stand_in(self, wanted: Address | None, now: float) -> bool:
        """Whether the links count while the provider is away; an unlisted wallet may be new."""
        return now - self.read_at < STALE_SECONDS and self._lists(wanted)

    def _lists(self, wanted: Address | None) -> bool:
        return wanted is None or wanted in self.links.wallets


class LinkedAccountCache:
    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._flights: SingleFlight[str, UserLinks] = SingleFlight(
            "identity links", policy.max_waiting, IdentityUnavailable
        )
        self._entries: LRUCache[str, _CachedLinks] = LRUCache(policy.max_cached_users)

    async def close(self) -> None:
        await self._flights.close()

    async def wallets_of(self, subject: str, wanted: Address | None) -> tuple[Address, ...]:
        if not is_subject(subject):
            return ()
        entry, now = self._entries.get(subject), self._clock()
        if entry is None:
            return (await self._read(subject)).wallets
        if entry.may_answer(wanted, now):
            return entry.links.wallets
        may_stand_in = entry.may_stand_in(wanted, now)
        try:
            pause = FAILURE_PAUSE_SECONDS if may_stand_in else UNKNOWN_WALLET_SECONDS
            return (await self._read_again(subject, entry, pause)).wallets
        except IdentityUnavailable:
            if may_stand_in:
                return entry.links.wallets
            raise

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        return (await self._fresh_links(subject)).accounts

    async def profile_of(self, subject: str) -> UserProfile | None:
        links = await self._fresh_links(subject)
        if links.home is None:
            return None
        return UserProfile(subject, IdentityUser(subject, links.home), links.emails)

    async def _fresh_links(self, subject: str) -> UserLinks:
        if not is_subject(subject):
            return UserLinks()
        entry = self._entries.get(subject)
        if entry is None:
            return await self._read(subject)
        if entry.is_fresh(self._clock()):
            return entry.links
        return await self._read_again(subject, entry, UNKNOWN_WALLET_SECONDS)

    async def _read_again(
        self, subject: str, entry: _CachedLinks, failure_pause: float
    ) -> UserLinks:
        if self._clock() < entry.failed_at + failure_pause:
            raise IdentityUnavailable("The identity provider has just failed")
        return await self._read(subject)

    async def _read(self, subject: str) -> UserLinks:
        with released_when_slow():
            return await self._flights.call(subject, lambda: self._read_into_cache(subject))

    async def _read_into_cache(self, subject: str) -> UserLinks:
        # The time of the request: a link that was made before the answer may be missing from it.
        read_at = self._clock()
        try:
            links = await self._fetch(subject)
        except IdentityUnavailable:
            if (entry := self._entries.get(subject)) is not None:
                entry.failed_at = self._clock()
            raise
        self._entries[subject] = _CachedLinks(links, read_at)
        return links

    async def _fetch(self, subject: str) -> UserLinks:
        async with self._calls.operation() as deadline:
            response = await self._calls.send("GET", f"/v1/users/{subject}", deadline=deadline)
            if response.status == 404:
                return UserLinks()
            if not response.is_success:
                raise refusal_in(response)
            rows = rows_in(response, subject)
            return UserLinks(
                ethereum_wallets(rows), accounts_in(rows), emails_in(rows), _home_wallet(rows)
            )


def _home_wallet(rows: Sequence[object]) -> Address | None:
    """Return None for a damaged address: it is no reason to refuse the user's other wallets."""
    with contextlib.suppress(MalformedAnswerError):
        return first_wallet(rows)
    return None
