"""The one client of the OAuth providers: whether an account exists, and what it is called.

Answers are kept, `exists` for an hour and the refusals for a minute; `unavailable` never. A kept
answer with another username than the caller's is asked for again, since people rename themselves.
Callers who ask of one account at the same time share the question.
"""

import asyncio
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Protocol, Self

import structlog
from cachetools import TLRUCache

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import Unavailable
from ltzd.providers.oauth.answers import (
    AccountLookupUnavailable,
    AccountVerification,
    Verdict,
    cannot_check,
    missing,
)
from ltzd.providers.oauth.by_id import discord, github, google, telegram, twitter
from ltzd.providers.oauth.by_name import InstagramLookup, TiktokLookup
from ltzd.providers.oauth.calls import LookupCalls, LookupSession
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.providers.oauth.spotify import SpotifyLookup
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, bare_username, check_id, is_same_username

__all__ = ["AccountLookupPolicy", "AccountLookups", "AccountVerification", "Verdict"]

_Key = tuple[OAuthProvider, str, str]

_UNAVAILABLE: Final = AccountVerification("unavailable")
_NOT_ASKED: Final = cannot_check("This provider is not asked about accounts here")
_log = structlog.get_logger(__name__)


class _LookUp(Protocol):
    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        """Raises AccountLookupUnavailable. `deadline` is in the event loop's time."""
        ...


class AccountLookups:
    def __init__(self, policy: AccountLookupPolicy, clock: Clock = time.monotonic) -> None:
        self._policy = policy
        self._session = LookupSession()
        self._look_ups = _look_ups(policy, self._session)
        self._flights: SingleFlight[_Key, AccountVerification] = SingleFlight(
            "account look-up", policy.max_waiting
        )
        self._kept: TLRUCache[_Key, AccountVerification] = TLRUCache(
            policy.max_kept, lambda _, found, now: now + self._keeps(found), clock
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends look-ups under way; their callers hear `unavailable`."""
        await self._flights.close()
        await self._session.close()

    async def verify(self, account: OAuthAccount) -> AccountVerification:
        """Never raises. An id that has not the provider's form is `missing`."""
        look_up = self._look_ups.get(account.provider)
        try:
            check_id(account.provider, account.user_id)
        except OAuthIdInvalid as error:
            return missing(f"The id {error.reason}")
        if look_up is None:
            return _NOT_ASKED
        key = _key(account)
        kept = self._kept.get(key)
        if kept is not None and _tells_of(kept, account):
            return kept
        try:
            return await self._flights.share(key, lambda: self._asked(key, look_up, account))
        except Unavailable:
            return _UNAVAILABLE

    async def _asked(
        self, key: _Key, look_up: _LookUp, account: OAuthAccount
    ) -> AccountVerification:
        deadline = loop_time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                found = await look_up.verify(account, deadline)
        except TimeoutError as error:
            _log.warning("account_look_up_unavailable", provider=key[0], reason="no answer in time")
            raise AccountLookupUnavailable("no answer in time") from error
        except AccountLookupUnavailable as error:
            _log.warning("account_look_up_unavailable", provider=key[0], reason=error.reason)
            raise
        self._kept[key] = found
        return found

    def _keeps(self, found: AccountVerification) -> float:
        policy = self._policy
        return policy.exists_seconds if found.verdict == "exists" else policy.missing_seconds


def _key(account: OAuthAccount) -> _Key:
    """By id, and by username where that is what is asked for."""
    is_named = account.provider in {"instagram", "tiktok"} and account.username is not None
    name = bare_username(account.username or "").lower() if is_named else ""
    return account.provider, account.user_id, name


def _tells_of(kept: AccountVerification, account: OAuthAccount) -> bool:
    names = (kept.username, account.username)
    return None in names or is_same_username(account.provider, str(names[0]), str(names[1]))


def _look_ups(
    policy: AccountLookupPolicy, session: LookupSession
) -> Mapping[OAuthProvider, _LookUp]:
    """One for each provider that is configured."""
    calls = {name: LookupCalls(name, policy, session) for name in PROVIDERS}
    found: dict[OAuthProvider, _LookUp] = {}
    if policy.discord is not None:
        found["discord"] = discord(policy.discord, calls["discord"])
    if policy.twitter is not None:
        found["twitter"] = twitter(policy.twitter, calls["twitter"])
    if policy.github is not None:
        found["github"] = github(policy.github, calls["github"])
    if policy.google is not None:
        found["google"] = google(policy.google, calls["google"])
    if policy.telegram is not None:
        found["telegram"] = telegram(policy.telegram, calls["telegram"])
    if policy.spotify is not None:
        found["spotify"] = SpotifyLookup(policy.spotify, calls["spotify"])
    if policy.instagram is not None:
        found["instagram"] = InstagramLookup(policy.instagram, calls["instagram"])
    if policy.tiktok is not None:
        found["tiktok"] = TiktokLookup(policy.tiktok, calls["tiktok"])
    return found
