"""The one client of the identity provider's users, through its server API (Privy).

The client finds the wallet of an e-mail address or of an account at an OAuth provider, lists a
user's wallets and accounts, and has users' wallets sign. A missing user or wallet is made. Asking
again, from any process and at any time, gives the same wallet: the provider refuses a second user
for a name, and of several wallets the one with the lowest index counts. E-mail addresses are
compared in lower case.

Raises IdentityUnavailable when no trustworthy answer comes in time, InvalidFields when the provider
refuses an e-mail address, and AccountRefused for an account. No address or account reaches a log or
an error.
"""

import asyncio
import time
from collections.abc import Hashable, Mapping
from typing import Any

import structlog

from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy
from ltzd.providers.identity.links import LinkedAccountCache
from ltzd.providers.identity.signing import TypedDataSigner
from ltzd.providers.identity.users import IdentityUser, UserDirectory, UserProfile
from ltzd.providers.outbound.http_client import AsyncCloseable
from ltzd.providers.outbound.retries import TransientFailure
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

__all__ = ["IdentityClient", "IdentityPolicy", "IdentityUser", "UserProfile"]


_log = structlog.get_logger(__name__)


class IdentityClient(AsyncCloseable):
    def __init__(self, policy: IdentityPolicy, clock: Clock = time.monotonic) -> None:
        """Raises Misconfigured for a malformed signer key."""
        self._policy = policy
        self._calls = IdentityCalls(policy)
        # Connections of its own: a stranger's events for invented addresses do not hold up what
        # known users ask for.
        self._directory_calls = IdentityCalls(policy)
        self._users = UserDirectory(policy, self._directory_calls)
        self._links = LinkedAccountCache(policy, self._calls, clock)
        self._signer = TypedDataSigner(policy, self._calls)
        self._last_ping_fault: str | None = None

    async def close(self) -> None:
        """End look-ups in flight; their callers get IdentityUnavailable."""
        await self._users.close()
        await self._links.close()
        await self._directory_calls.close()
        await self._calls.close()

    async def wallet_of_email(self, email: str, brand: Address | None = None) -> IdentityUser:
        return await self._users.of_email(email, brand)

    async def wallet_of_account(
        self, account: OAuthAccount, party: Hashable = None
    ) -> IdentityUser:
        """Raises AccountRefused for an account without the details that the vendor demands.

        Discord, GitHub, Instagram and TikTok accounts need their username, Twitter's its name too,
        Google's its name and e-mail address, each in the vendor's form.
        """
        return await self._users.of_account(account, party)

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Return every Ethereum wallet of the user; an empty tuple for an unknown user.

        The wallets are cached for a minute, and for up to an hour while the provider is away. If
        `wanted` is not among them, the provider is asked again sooner.
        """
        return await self._links.wallets_of(subject, wanted)

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        """Return the accounts that the user has logged in with, not older than a minute.

        Their e-mail addresses are left out: they prove nothing.
        """
        return await self._links.accounts_of(subject)

    async def profile_of(self, subject: str) -> UserProfile | None:
        """Return the user's profile, not older than a minute, or None without an embedded wallet.

        `home` is the wallet with the lowest index: the one that the user's addresses and accounts
        get when they are looked up.
        """
        return await self._links.profile_of(subject)

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """Return the wallet's signature: 65 bytes (r, s, v of 27 or 28), verified.

        `typed_data` is EIP-712 JSON with `types`, `primaryType`, `domain` and `message`; bytes may
        stay bytes. Needs the policy's signer, and a wallet that was made with it. Raises ValueError
        for malformed data, and for a wallet that its owner has linked and signs for alone.
        """
        return await self._signer.sign(wallet, typed_data)

    @property
    def under_way(self) -> int:
        """The number of users that are being looked up or made now."""
        return len(self._users)

    async def ping(self) -> bool:
        """Return whether the provider answers and accepts our credentials. Never raises.

        Sends one request and does not repeat it. A failure is logged unless the ping before had the
        same one.
        """
        fault = await self._ping_fault()
        if fault is not None and fault != self._last_ping_fault:
            _log.warning("identity_ping_failed", reason=fault)
        self._last_ping_fault = fault
        return fault is None

    async def _ping_fault(self) -> str | None:
        try:
            async with asyncio.timeout(self._policy.attempt_seconds):
                response = await self._calls.send_once("GET", "/v1/users?limit=1")
        except TimeoutError:
            return "no answer in time"
        except TransientFailure as failure:
            return failure.reason
        except IdentityUnavailable as error:
            return error.message
        return None if response.is_success else f"refused with status {response.status}"
