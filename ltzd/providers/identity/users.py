"""Finds the identity provider's user of a name, or makes one, with exactly one embedded wallet.

The provider refuses a second user for a name, so asking again, from any process and at any time,
gives the same user: a creation that comes too late is answered with the existing user, or with a
conflict that names it. Either way the user must list the name that was asked for: a user name
changes hands, and an e-mail address that nobody has proven may be another user's.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

import msgspec

from ltzd.concurrency.fair_slots import FairSlots
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import IdentityUnavailable
from ltzd.providers.identity.accounts import UserQuery, account_query, email_query
from ltzd.providers.identity.answers import (
    ProviderUser,
    error_code_in,
    existing_subject_in,
    user_in,
)
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError
from ltzd.providers.outbound.retries import TransientFailure
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

_NAME_REFUSED = frozenset({"invalid_data", "allowlist_rejected"})
_LINKED_ELSEWHERE = frozenset({"linked_to_another_user", "cannot_link_more_of_type"})


class IdentityUser(msgspec.Struct, frozen=True):
    subject: str
    wallet: Address


@dataclass(frozen=True, slots=True)
class UserProfile:
    """A user who has logged in, and the wallet that rewards for the proven addresses go to.

    `id` never changes; `emails` are the proven addresses, in lower case.
    """

    id: str
    home: IdentityUser
    emails: tuple[str, ...] = field(default=(), repr=False)


class UserDirectory:
    """Parties take turns, and a party's callers that look up one name at once share one look-up.

    Callers of two parties share none: the other party's turn may come much later.
    """

    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls) -> None:
        self._calls = calls
        # A look-up sends one request at a time.
        self._slots: FairSlots[Hashable] = FairSlots(policy.max_concurrent)
        self._flights: SingleFlight[tuple[str | OAuthAccount, Hashable], IdentityUser] = (
            SingleFlight("identity look-up", policy.max_waiting, IdentityUnavailable)
        )
        self._wallets = [_wallet_order(policy)]

    def __len__(self) -> int:
        """The number of look-ups in flight."""
        return len(self._flights)

    async def close(self) -> None:
        await self._flights.close()

    async def of_email(self, email: str, brand: Address | None) -> IdentityUser:
        return await self._shared(email.lower(), email_query(email.lower()), brand)

    async def of_account(self, account: OAuthAccount, party: Hashable) -> IdentityUser:
        """Raises AccountRefused."""
        # The key holds the account's details: wrong details of one caller must not fail another.
        return await self._shared(account, account_query(account), party)

    async def _shared(
        self, name: str | OAuthAccount, query: UserQuery, party: Hashable
    ) -> IdentityUser:
        return await self._flights.call((name, party), lambda: self._find_or_create(query, party))

    async def _find_or_create(self, query: UserQuery, party: Hashable) -> IdentityUser:
        async with self._calls.operation() as deadline, self._slots.slot(party):
            user = await self._find(query, deadline) or await self._create(query, deadline)
            if user.wallet is None:
                user = await self._add_wallet(user.subject, deadline)
            if user.wallet is None:
                raise MalformedAnswerError("the user has no wallet after one was made")
            return IdentityUser(user.subject, user.wallet)

    async def _find(self, query: UserQuery, deadline: float) -> ProviderUser | None:
        if query.lookup is None:
            return None
        path, body = query.lookup
        response = await self._calls.send("POST", f"/v1/users/{path}", body, deadline=deadline)
        if response.status == 404:
            return None
        user = _user_or_refusal(response, query)
        return user if query.is_listed_in(user.rows) else None

    async def _create(self, query: UserQuery, deadline: float) -> ProviderUser:
        body = {"linked_accounts": [query.row], "wallets": self._wallets}
        response = await self._calls.send("POST", "/v1/users", body, deadline=deadline)
        # The user was made after our look-up, by another process or by our own first attempt,
        # whose answer was lost.
        subject = existing_subject_in(response) if response.status == 422 else None
        if subject is not None:
            user = await self._read(subject, deadline)
        else:
            user = _user_or_refusal(response, query)
        if not query.is_listed_in(user.rows):
            raise query.elsewhere
        return user

    async def _read(self, subject: str, deadline: float) -> ProviderUser:
        response = await self._calls.send("GET", f"/v1/users/{subject}", deadline=deadline)
        if not response.is_success:
            raise refusal_in(response)
        return user_in(response)

    async def _add_wallet(self, subject: str, deadline: float) -> ProviderUser:
        """Read before each attempt: repeated without a read, this call makes a second wallet."""
        backoff = self._calls.backoff(deadline)
        while True:
            user = await self._read(subject, deadline)
            if user.wallet is not None:
                return user
            try:
                return await self._post_wallet(subject)
            except TransientFailure as failure:
                await backoff.pause(failure)

    async def _post_wallet(self, subject: str) -> ProviderUser:
        response = await self._calls.send_once(
            "POST",
            f"/v1/users/{subject}/wallets",
            {"wallets": self._wallets},
            headers={"privy-idempotency-key": f"ltzd-first-wallet-{subject}"},
        )
        if not response.is_success:
            raise refusal_in(response)
        return user_in(response)


def _wallet_order(policy: IdentityPolicy) -> dict[str, object]:
    order: dict[str, object] = {"chain_type": "ethereum"}
    if policy.signer_id is not None:
        order["additional_signers"] = [{"signer_id": policy.signer_id}]
    return order


def _user_or_refusal(response: HttpResponse, query: UserQuery) -> ProviderUser:
    if response.is_success:
        return user_in(response)
    refusal, code = refusal_in(response), error_code_in(response)
    if response.status == 400 and code in _NAME_REFUSED:
        raise query.refused
    if code in _LINKED_ELSEWHERE:
        raise query.elsewhere
    raise refusal
