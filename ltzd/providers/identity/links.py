"""Which wallets and accounts belong to a user of the identity provider, remembered for a while.

Raises IdentityUnavailable when neither the provider nor a fresh enough memory can tell.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from cachetools import LRUCache

from ltzd.concurrency.clock import Clock
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.accounts import accounts_in, emails_in
from ltzd.providers.identity.answers import (
    MalformedAnswerError,
    ethereum_wallets,
    first_wallet,
    is_subject,
    rows_in,
)
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.identity.users import IdentityUser, UserProfile
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

FRESH_SECONDS = 60.0
"""What its user unlinks counts so much longer."""
KEPT_SECONDS = 3600.0
"""And a wallet so much longer while the provider is away: as long as the user's token lives.

Accounts and addresses do not: whoever acts on them joins two names for good.
"""
LOOK_AGAIN_SECONDS = 3.0
"""For a wallet that is not among the known ones."""
FAILED_PAUSE_SECONDS = 15.0
"""After a failure, where the known ones will do: a slow provider costs its users' time, too."""
MOST_USERS = 20_000
"""Some 20 MB."""


@dataclass(frozen=True, slots=True)
class UserLinks:
    wallets: tuple[Address, ...] = ()
    accounts: tuple[OAuthAccount, ...] = ()
    emails: tuple[str, ...] = field(default=(), repr=False)
    home: Address | None = None
    """The wallet that counts."""


@dataclass(slots=True)
class _Known:
    links: UserLinks
    read_at: float
    failed_at: float = float("-inf")

    def is_fresh(self, now: float) -> bool:
        return now - self.read_at < FRESH_SECONDS

    def tells(self, wanted: Address | None, now: float) -> bool:
        is_answer = wanted is None or wanted in self.links.wallets
        return self.is_fresh(now) if is_answer else now - self.read_at < LOOK_AGAIN_SECONDS

    def will_do(self, wanted: Address | None, now: float) -> bool:
        """If the provider cannot be asked. A wallet that we do not know may be a new one."""
        is_answer = wanted is None or wanted in self.links.wallets
        return now - self.read_at < KEPT_SECONDS and is_answer


class LinkedAccountCache:
    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls, clock: Clock) -> None:
        self._calls = calls
        self._clock = clock
        self._flights: SingleFlight[str, UserLinks] = SingleFlight(
            "identity links", policy.max_waiting
        )
        self._known: LRUCache[str, _Known] = LRUCache(MOST_USERS)

    async def close(self) -> None:
        await self._flights.close()

    async def wallets_of(self, subject: str, wanted: Address | None) -> tuple[Address, ...]:
        if not is_subject(subject):
            return ()
        known, now = self._known.get(subject), self._clock()
        if known is None:
            return (await self._asked(subject)).wallets
        if known.tells(wanted, now):
            return known.links.wallets
        will_do = known.will_do(wanted, now)
        try:
            pause = FAILED_PAUSE_SECONDS if will_do else LOOK_AGAIN_SECONDS
            return (await self._asked_after(pause, subject, known)).wallets
        except IdentityUnavailable:
            if will_do:
                return known.links.wallets
            raise

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        return (await self._fresh(subject)).accounts

    async def profile_of(self, subject: str) -> UserProfile | None:
        links = await self._fresh(subject)
        if links.home is None:
            return None
        return UserProfile(subject, IdentityUser(subject, links.home), links.emails)

    async def _fresh(self, subject: str) -> UserLinks:
        if not is_subject(subject):
            return UserLinks()
        known = self._known.get(subject)
        if known is None:
            return await self._asked(subject)
        if known.is_fresh(self._clock()):
            return known.links
        return await self._asked_after(LOOK_AGAIN_SECONDS, subject, known)

    async def _asked_after(self, pause: float, subject: str, known: _Known) -> UserLinks:
        if self._clock() < known.failed_at + pause:
            raise IdentityUnavailable("The identity provider has just failed")
        return await self._asked(subject)

    async def _asked(self, subject: str) -> UserLinks:
        return await self._flights.share(subject, lambda: self._read(subject))

    async def _read(self, subject: str) -> UserLinks:
        # When we asked, not when we heard: what was linked between may be missing.
        asked_at = self._clock()
        try:
            links = await self._told(subject)
        except IdentityUnavailable:
            if (known := self._known.get(subject)) is not None:
                known.failed_at = self._clock()
            raise
        self._known[subject] = _Known(links, asked_at)
        return links

    async def _told(self, subject: str) -> UserLinks:
        async with self._calls.question() as deadline:
            reply = await self._calls.ask("GET", f"/v1/users/{subject}", deadline=deadline)
            if reply.status == 404:
                return UserLinks()
            if not reply.is_ok:
                raise refusal_in(reply)
            rows = rows_in(reply, subject)
            return UserLinks(
                ethereum_wallets(rows), accounts_in(rows), emails_in(rows), _home(rows)
            )


def _home(rows: Sequence[object]) -> Address | None:
    """A damaged one leads nobody there, and is no reason to doubt the others."""
    with contextlib.suppress(MalformedAnswerError):
        return first_wallet(rows)
    return None
