"""The one client of the identity provider's users: whose wallet belongs to an e-mail address, and
which wallets to a user.

Speaks Privy's server API. A user or wallet that is missing is made, and asking again, from any
process and at any time, gives the same wallet: the provider refuses a second user for an address,
and of several wallets the one with the lowest index counts. Addresses are compared in lower case.

Raises IdentityUnavailable when no trustworthy answer comes in time, and InvalidFields when the
provider refuses the address itself. E-mail addresses reach no log and no error.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ltzd.errors import IdentityUnavailable, InvalidFields
from ltzd.providers.flights import Flights
from ltzd.providers.identity_answers import (
    FoundUser,
    MalformedError,
    Reply,
    existing_subject_in,
    slug_in,
    user_in,
)
from ltzd.providers.identity_calls import (
    IdentityCalls,
    IdentityPolicy,
    TransientFailure,
    refusal_in,
)
from ltzd.providers.identity_wallets import WalletBook
from ltzd.values import Address

__all__ = ["IdentityClient", "IdentityPolicy", "IdentityUser"]

_ADDRESS_REFUSED = frozenset({"invalid_data", "allowlist_rejected"})
_ETHEREUM_WALLET = [{"chain_type": "ethereum"}]


@dataclass(frozen=True, slots=True)
class IdentityUser:
    subject: str
    wallet: Address


class IdentityClient:
    """Callers asking for one e-mail address at the same time share one look-up."""

    def __init__(self, policy: IdentityPolicy, ticks: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._calls = IdentityCalls(policy)
        self._flights: Flights[str, IdentityUser] = Flights("identity look-up", policy.max_waiting)
        self._wallets = WalletBook(policy, self._calls, ticks)

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
        await self._flights.close()
        await self._wallets.close()
        await self._calls.close()

    async def wallet_of_email(self, email: str) -> IdentityUser:
        return await self._flights.share(email.lower(), lambda: self._in_time(email.lower()))

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Every ethereum wallet of the user, none if the provider knows no such user.

        Kept for a minute, and for up to an hour while the provider is away; sooner asked again if
        `wanted` is not among them.
        """
        return await self._wallets.of(subject, wanted)

    @property
    def under_way(self) -> int:
        """How many users are being looked up or made now."""
        return len(self._flights)

    async def ping(self) -> bool:
        """Whether the provider answers and takes our credentials; one attempt, never raises."""
        with contextlib.suppress(IdentityUnavailable, TimeoutError):
            async with asyncio.timeout(self._policy.attempt_seconds):
                return (await self._calls.ask_once("GET", "/v1/users?limit=1")).is_ok
        return False

    async def _in_time(self, email: str) -> IdentityUser:
        async with self._calls.question() as deadline:
            return await self._found_or_made(email, deadline)

    async def _found_or_made(self, email: str, deadline: float) -> IdentityUser:
        user = await self._look_up(email, deadline) or await self._make(email, deadline)
        if user.wallet is None:
            user = await self._give_wallet(user.subject, deadline)
        if user.wallet is None:
            raise MalformedError("the user has no wallet after one was made")
        return IdentityUser(user.subject, user.wallet)

    async def _look_up(self, email: str, deadline: float) -> FoundUser | None:
        path = "/v1/users/email/address"
        reply = await self._calls.ask("POST", path, {"address": email}, deadline=deadline)
        return None if reply.status == 404 else _user_or_refusal(reply)

    async def _make(self, email: str, deadline: float) -> FoundUser:
        body = {
            "linked_accounts": [{"type": "email", "address": email}],
            "wallets": _ETHEREUM_WALLET,
        }
        reply = await self._calls.ask("POST", "/v1/users", body, deadline=deadline)
        # Made since we looked: by another process, or by our first attempt whose answer was lost.
        subject = existing_subject_in(reply) if reply.status == 422 else None
        return await self._read(subject, deadline) if subject else _user_or_refusal(reply)

    async def _read(self, subject: str, deadline: float) -> FoundUser:
        return _user_or_refusal(
            await self._calls.ask("GET", f"/v1/users/{subject}", deadline=deadline)
        )

    async def _give_wallet(self, subject: str, deadline: float) -> FoundUser:
        """Reads before each attempt: repeated blindly, this call makes a second wallet."""
        attempt = 0
        while True:
            user = await self._read(subject, deadline)
            if user.wallet is not None:
                return user
            try:
                return _user_or_refusal(await self._post_wallet(subject))
            except TransientFailure as failure:
                attempt += 1
                await self._calls.pause(attempt, failure, deadline)

    async def _post_wallet(self, subject: str) -> Reply:
        return await self._calls.ask_once(
            "POST",
            f"/v1/users/{subject}/wallets",
            {"wallets": _ETHEREUM_WALLET},
            idempotency_key=f"ltzd-first-wallet-{subject}",
        )


def _user_or_refusal(reply: Reply) -> FoundUser:
    if reply.is_ok:
        return user_in(reply)
    refusal = refusal_in(reply)
    if reply.status == 400 and slug_in(reply) in _ADDRESS_REFUSED:
        raise InvalidFields(["userEmail: the identity provider refuses this address"])
    raise refusal
