"""The one client of the OAuth providers: whether an account exists, and what it is called there.

Answers are cached: `exists` for an hour, refusals for a minute, `unavailable` never. If a cached
answer has another username than the caller's, the provider is asked again, since people rename
themselves. Parties take turns at each provider, and a party's callers that look up one account at
the same time share one look-up.
"""

import asyncio
import time
from collections.abc import Hashable, Mapping
from typing import Final, Protocol

import structlog
from cachetools import TLRUCache

from ltzd.concurrency.clock import Clock, loop_time
from ltzd.concurrency.fair_slots import FairSlots
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import AccountLookupUnavailable
from ltzd.providers.oauth.answers import AccountVerification, Verdict, cannot_check, missing
from ltzd.providers.oauth.by_id import discord, github, google, telegram, twitter
from ltzd.providers.oauth.by_name import InstagramLookup, TiktokLookup
from ltzd.providers.oauth.calls import LookupCalls, lookup_http_client
from ltzd.providers.oauth.policy import AccountLookupPolicy
from ltzd.providers.oauth.spotify import SpotifyLookup
from ltzd.providers.outbound.http_client import AsyncCloseable, HttpClient
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, bare_username, check_id, is_same_username

__all__ = ["AccountLookupPolicy", "AccountLookups", "AccountVerification", "Verdict"]

_Key = tuple[OAuthProvider, str, str]

_UNAVAILABLE: Final = AccountVerification("unavailable")
_NOT_CONFIGURED: Final = cannot_check("Accounts of this provider cannot be checked here")
_log = structlog.get_logger(__name__)


class _Lookup(Protocol):
    async def verify(self, account: OAuthAccount, deadline: float) -> AccountVerification:
        """Raises AccountLookupUnavailable. `deadline` is in the event loop's time."""
        ...


class AccountLookups(AsyncCloseable):
    def __init__(self, policy: AccountLookupPolicy, clock: Clock = time.monotonic) -> None:
        self._policy = policy
        self._http = lookup_http_client()
        self._lookups = _configured_lookups(policy, self._http)
        self._flights: SingleFlight[tuple[_Key, Hashable], AccountVerification] = SingleFlight(
            "account look-up", policy.max_waiting, AccountLookupUnavailable
        )
        self._turns: Mapping[OAuthProvider, FairSlots[Hashable]] = {
            provider: FairSlots(policy.max_concurrent) for provider in PROVIDERS
        }
        self._cache: TLRUCache[_Key, AccountVerification] = TLRUCache(
            policy.max_cached, lambda _, answer, now: now + self._seconds_to_keep(answer), clock
        )

    async def close(self) -> None:
        """End look-ups in flight; their callers get `unavailable`."""
        await self._flights.close()
        await self._http.close()

    async def verify(self, account: OAuthAccount, party: Hashable = None) -> AccountVerification:
        """Return the provider's verdict; a malformed id is `missing`. Never raises.

        While a provider is slow, the parties that ask for accounts take turns.
        """
        lookup = self._lookups.get(account.provider)
        try:
            check_id(account.provider, account.user_id)
        except OAuthIdInvalid as error:
            return missing(f"The id {error.reason}")
        if lookup is None:
            return _NOT_CONFIGURED
        key = _key(account)
        cached = self._cache.get(key)
        if cached is not None and _is_about(cached, account):
            return cached
        try:
            return await self._flights.call(
                (key, party), lambda: self._look_up(key, lookup, account, party)
            )
        except AccountLookupUnavailable:
            return _UNAVAILABLE

    async def _look_up(
        self, key: _Key, lookup: _Lookup, account: OAuthAccount, party: Hashable
    ) -> AccountVerification:
        deadline = loop_time() + self._policy.timeout_seconds
        turns = self._turns[account.provider]
        try:
            async with asyncio.timeout_at(deadline), turns.slot(party):
                answer = await lookup.verify(account, deadline)
        except TimeoutError as error:
            _log.warning("account_look_up_unavailable", provider=key[0], reason="no answer in time")
            raise AccountLookupUnavailable("no answer in time") from error
        except AccountLookupUnavailable as error:
            _log.warning("account_look_up_unavailable", provider=key[0], reason=error.reason)
            raise
        self._cache[key] = answer
        return answer

    def _seconds_to_keep(self, answer: AccountVerification) -> float:
        policy = self._policy
        return policy.exists_seconds if answer.verdict == "exists" else policy.missing_seconds


def _key(account: OAuthAccount) -> _Key:
    """By id; at Instagram and TikTok, which are asked by username, by username as well."""
    is_named = account.provider in {"instagram", "tiktok"} and account.username is not None
    name = bare_username(account.username or "").lower() if is_named else ""
    return account.provider, account.user_id, name


def _is_about(cached: AccountVerification, account: OAuthAccount) -> bool:
    """Whether the names agree, as far as both are known."""
    names = (cached.username, account.username)
    return None in names or is_same_username(account.provider, str(names[0]), str(names[1]))


def _configured_lookups(
    policy: AccountLookupPolicy, http: HttpClient
) -> Mapping[OAuthProvider, _Lookup]:
    calls = {name: LookupCalls(name, policy, http) for name in PROVIDERS}
    lookups: dict[OAuthProvider, _Lookup] = {}
    if policy.discord is not None:
        lookups["discord"] = discord(policy.discord, calls["discord"])
    if policy.twitter is not None:
        lookups["twitter"] = twitter(policy.twitter, calls["twitter"])
    if policy.github is not None:
        lookups["github"] = github(policy.github, calls["github"])
    if policy.google is not None:
        lookups["google"] = google(policy.google, calls["google"])
    if policy.telegram is not None:
        lookups["telegram"] = telegram(policy.telegram, calls["telegram"])
    if policy.spotify is not None:
        lookups["spotify"] = SpotifyLookup(policy.spotify, calls["spotify"])
    if policy.instagram is not None:
        lookups["instagram"] = InstagramLookup(policy.instagram, calls["instagram"])
    if policy.tiktok is not None:
        lookups["tiktok"] = TiktokLookup(policy.tiktok, calls["tiktok"])
    return lookups
