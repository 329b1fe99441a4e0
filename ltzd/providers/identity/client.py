"""The one client of the identity provider's users: whose wallet belongs to an e-mail address or to
an account at an OAuth provider, what is linked to a user, and signatures by users' wallets.

Speaks Privy's server API. A user or wallet that is missing is made, and asking again, from any
process and at any time, gives the same wallet: the provider refuses a second user for a name, and
of several wallets the one with the lowest index counts. E-mail addresses are compared in lower
case.

Raises IdentityUnavailable when no trustworthy answer comes in time, InvalidFields when the provider
refuses an e-mail address, and AccountRefused for an account. Neither reaches a log or an error.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ltzd.concurrency.clock import Clock
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy
from ltzd.providers.identity.links import LinkedAccountCache
from ltzd.providers.identity.signing import WalletSigner
from ltzd.providers.identity.users import IdentityUser, UserDirectory, UserProfile
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

__all__ = ["IdentityClient", "IdentityPolicy", "IdentityUser", "UserProfile"]


class IdentityClient:
    def __init__(self, policy: IdentityPolicy, clock: Clock = time.monotonic) -> None:
        """Raises Misconfigured for a signer's key that is none."""
        self._policy = policy
        self._calls = IdentityCalls(policy)
        self._users = UserDirectory(policy, self._calls)
        self._links = LinkedAccountCache(policy, self._calls, clock)
        self._signer = WalletSigner(policy, self._calls)

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
        """Ends look-ups under way; their callers hear IdentityUnavailable."""
        await self._users.close()
        await self._links.close()
        await self._calls.close()

    async def wallet_of_email(self, email: str) -> IdentityUser:
        return await self._users.of_email(email)

    async def wallet_of_account(self, account: OAuthAccount) -> IdentityUser:
        """Discord, GitHub, Instagram and TikTok accounts need their username, Twitter's its name
        too, Google's its name and e-mail address; all must have the form that the vendor wants.
        """
        return await self._users.of_account(account)

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Every ethereum wallet of the user, none if the provider knows no such user.

        Kept for a minute, and for up to an hour while the provider is away; sooner asked again if
        `wanted` is not among them.
        """
        return await self._links.wallets_of(subject, wanted)

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        """The accounts that the user has logged in with, by what was told within the last minute.

        Without their e-mail addresses, which prove nothing.
        """
        return await self._links.accounts_of(subject)

    async def profile_of(self, subject: str) -> UserProfile | None:
        """By what was told within the last minute; None of one without an embedded wallet.

        His home is his wallet with the lowest index: the one that his names get when they are asked
        for.
        """
        return await self._links.profile_of(subject)

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """EIP-712 JSON with `types`, `primaryType`, `domain` and `message`; bytes may stay bytes.

        65 bytes (r, s, v of 27 or 28), and really the wallet's. Needs the policy's signer, and a
        wallet that was made with it. Raises ValueError for data that are none.
        """
        return await self._signer.sign(wallet, typed_data)

    @property
    def under_way(self) -> int:
        """How many users are being looked up or made now."""
        return len(self._users)

    async def ping(self) -> bool:
        """Whether the provider answers and takes our credentials; one attempt, never raises."""
        with contextlib.suppress(IdentityUnavailable, TimeoutError):
            async with asyncio.timeout(self._policy.attempt_seconds):
                return (await self._calls.ask_once("GET", "/v1/users?limit=1")).is_ok
        return False
