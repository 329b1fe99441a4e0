"""Finds the identity provider's user for a name, or makes him, with exactly one wallet of ours.

The provider refuses a second user for a name, so asking again, from any process and at any time,
gives the same one: a creation that comes too late is answered with the user that is there, or with
a conflict that names him. Whoever answers, the user must list the name that was asked for: a user
name changes hands, and an e-mail address that nobody has proven may be another user's.
"""

from dataclasses import dataclass, field

from ltzd.concurrency.single_flight import SingleFlight
from ltzd.providers.identity.accounts import UserQuery, sought_account, sought_email
from ltzd.providers.identity.answers import (
    MalformedAnswerError,
    ProviderUser,
    Reply,
    existing_subject_in,
    slug_in,
    user_in,
)
from ltzd.providers.identity.calls import (
    IdentityCalls,
    IdentityPolicy,
    TransientIdentityFailure,
    refusal_in,
)
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address

_REFUSED = frozenset({"invalid_data", "allowlist_rejected"})
_ELSEWHERE = frozenset({"linked_to_another_user", "cannot_link_more_of_type"})


@dataclass(frozen=True, slots=True)
class IdentityUser:
    subject: str
    wallet: Address


@dataclass(frozen=True, slots=True)
class UserProfile:
    """Somebody who has logged in, and where what is given to his proven addresses goes from now on.

    `id` is what he is called for good; `emails` are in lower case.
    """

    id: str
    home: IdentityUser
    emails: tuple[str, ...] = field(default=(), repr=False)


class UserDirectory:
    """Callers asking for one name at the same time share one look-up."""

    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls) -> None:
        self._calls = calls
        self._flights: SingleFlight[str | OAuthAccount, IdentityUser] = SingleFlight(
            "identity look-up", policy.max_waiting
        )
        self._wallets = [_wallet_order(policy)]

    def __len__(self) -> int:
        """How many are under way."""
        return len(self._flights)

    async def close(self) -> None:
        await self._flights.close()

    async def of_email(self, email: str) -> IdentityUser:
        return await self._shared(email.lower(), sought_email(email.lower()))

    async def of_account(self, account: OAuthAccount) -> IdentityUser:
        """Raises AccountRefused."""
        # Shared by callers who say the same of it: one's wrong details are not the other's failure.
        return await self._shared(account, sought_account(account))

    async def _shared(self, name: str | OAuthAccount, sought: UserQuery) -> IdentityUser:
        return await self._flights.share(name, lambda: self._in_time(sought))

    async def _in_time(self, sought: UserQuery) -> IdentityUser:
        async with self._calls.question() as deadline:
            user = await self._look_up(sought, deadline) or await self._make(sought, deadline)
            if user.wallet is None:
                user = await self._give_wallet(user.subject, deadline)
            if user.wallet is None:
                raise MalformedAnswerError("the user has no wallet after one was made")
            return IdentityUser(user.subject, user.wallet)

    async def _look_up(self, sought: UserQuery, deadline: float) -> ProviderUser | None:
        if sought.look_up is None:
            return None
        path, body = sought.look_up
        reply = await self._calls.ask("POST", f"/v1/users/{path}", body, deadline=deadline)
        if reply.status == 404:
            return None
        user = _user_or_refusal(reply, sought)
        return user if sought.is_listed_in(user.rows) else None

    async def _make(self, sought: UserQuery, deadline: float) -> ProviderUser:
        body = {"linked_accounts": [sought.row], "wallets": self._wallets}
        reply = await self._calls.ask("POST", "/v1/users", body, deadline=deadline)
        # Made since we looked: by another process, or by our first attempt whose answer was lost.
        subject = existing_subject_in(reply) if reply.status == 422 else None
        if subject is not None:
            user = await self._read(subject, deadline)
        else:
            user = _user_or_refusal(reply, sought)
        if not sought.is_listed_in(user.rows):
            raise sought.elsewhere
        return user

    async def _read(self, subject: str, deadline: float) -> ProviderUser:
        reply = await self._calls.ask("GET", f"/v1/users/{subject}", deadline=deadline)
        if not reply.is_ok:
            raise refusal_in(reply)
        return user_in(reply)

    async def _give_wallet(self, subject: str, deadline: float) -> ProviderUser:
        """Reads before each attempt: repeated blindly, this call makes a second wallet."""
        attempt = 0
        while True:
            user = await self._read(subject, deadline)
            if user.wallet is not None:
                return user
            try:
                return await self._post_wallet(subject)
            except TransientIdentityFailure as failure:
                attempt += 1
                await self._calls.pause(attempt, failure, deadline)

    async def _post_wallet(self, subject: str) -> ProviderUser:
        reply = await self._calls.ask_once(
            "POST",
            f"/v1/users/{subject}/wallets",
            {"wallets": self._wallets},
            headers={"privy-idempotency-key": f"ltzd-first-wallet-{subject}"},
        )
        if not reply.is_ok:
            raise refusal_in(reply)
        return user_in(reply)


def _wallet_order(policy: IdentityPolicy) -> dict[str, object]:
    order: dict[str, object] = {"chain_type": "ethereum"}
    if policy.signer_id is not None:
        order["additional_signers"] = [{"signer_id": policy.signer_id}]
    return order


def _user_or_refusal(reply: Reply, sought: UserQuery) -> ProviderUser:
    if reply.is_ok:
        return user_in(reply)
    refusal, slug = refusal_in(reply), slug_in(reply)
    if reply.status == 400 and slug in _REFUSED:
        raise sought.refused
    if slug in _ELSEWHERE:
        raise sought.elsewhere
    raise refusal
