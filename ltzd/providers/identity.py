"""The one client of the identity provider: whose wallet belongs to an e-mail address.

Speaks Privy's server API. A user or wallet that is missing is made, and asking again, from any
process and at any time, gives the same wallet: the provider refuses a second user for an address,
and of several wallets the one with the lowest index counts. Addresses are compared in lower case.

Raises IdentityUnavailable when no trustworthy answer comes in time, and InvalidFields when the
provider refuses the address itself. E-mail addresses reach no log and no error.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from ltzd.errors import IdentityUnavailable, InvalidFields
from ltzd.providers.identity_answers import (
    FoundUser,
    MalformedError,
    Reply,
    existing_subject_in,
    slug_in,
    user_in,
)
from ltzd.providers.identity_calls import IdentityCalls, IdentityPolicy, TransientFailure
from ltzd.values import Address

__all__ = ["IdentityClient", "IdentityPolicy", "IdentityUser"]

_ADDRESS_REFUSED = frozenset({"invalid_data", "allowlist_rejected"})
_ETHEREUM_WALLET = [{"chain_type": "ethereum"}]

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IdentityUser:
    subject: str
    wallet: Address


class IdentityClient:
    """Callers asking for one e-mail address at the same time share one look-up."""

    def __init__(self, policy: IdentityPolicy) -> None:
        self._policy = policy
        self._calls = IdentityCalls(policy)
        self._flights: dict[str, asyncio.Task[IdentityUser]] = {}

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
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        await self._calls.close()

    async def wallet_of_email(self, email: str) -> IdentityUser:
        key = email.lower()
        flight = self._flights.get(key) or self._take_off(key)
        try:
            # Shielded: a caller that gives up must not take the others' answer with it.
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if flight.cancelled() and not (caller and caller.cancelling()):
                raise IdentityUnavailable("The identity client is closed") from None
            raise

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

    def _take_off(self, email: str) -> asyncio.Task[IdentityUser]:
        if len(self._flights) >= self._policy.max_waiting:
            raise IdentityUnavailable("Too many identity look-ups are waiting")
        flight = asyncio.create_task(self._in_time(email), name="identity look-up")
        self._flights[email] = flight
        flight.add_done_callback(lambda done: self._land(email, done))
        return flight

    def _land(self, email: str, flight: asyncio.Task[IdentityUser]) -> None:
        del self._flights[email]
        # Looked at here, so that a failure nobody waits for any more is not reported as forgotten.
        if not flight.cancelled():
            flight.exception()

    async def _in_time(self, email: str) -> IdentityUser:
        deadline = asyncio.get_running_loop().time() + self._policy.timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                return await self._found_or_made(email, deadline)
        except TimeoutError as error:
            _log.warning("identity_unavailable", reason="no answer in time")
            raise IdentityUnavailable("The identity provider did not answer in time") from error
        except TransientFailure as error:
            _log.warning("identity_unavailable", reason=error.reason)
            raise IdentityUnavailable(error.message) from error
        except MalformedError as error:
            _log.warning("identity_answer_malformed", reason=str(error))
            raise IdentityUnavailable("The identity provider's answer makes no sense") from error

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
    code = slug_in(reply)
    _log.warning("identity_call_refused", status=reply.status, code=code)
    if reply.status == 400 and code in _ADDRESS_REFUSED:
        raise InvalidFields(["userEmail: the identity provider refuses this address"])
    if reply.status in {401, 403}:
        raise IdentityUnavailable("The identity provider refuses our credentials")
    raise IdentityUnavailable("The identity provider refused the request")
