"""Whether a user is the chat platform's member that a constraint wants, by any account of his.

His are the accounts that his verified token names, those that the identity provider has for the
token's subject, and those that his wallet was made for before he ever logged in.
"""

import asyncio

from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.errors import IdentityUnavailable
from ltzd.providers.chat import ChatPlatform, ChatUnavailable
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.constraints.chat_queries import combine_verdicts
from ltzd.rules.constraints.constraints import ChatConstraint, is_satisfied
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider
from ltzd.store.database import Pool, session
from ltzd.store.users import pregenerations
from ltzd.values import Address

PLATFORM: OAuthProvider = "discord"
MOST_ACCOUNTS = 5
"""Of one user; each costs the platform a question."""


class ChatMembers:
    """Where no `platform` is configured nothing can be found out; without `identities` only what a
    token names itself, and what a wallet was made for, is a user's."""

    def __init__(
        self,
        pool: Pool,
        identities: IdentityProvider | None = None,
        platform: ChatPlatform | None = None,
    ) -> None:
        self._pool = pool
        self._identities = identities
        self._platform = platform

    async def accounts(self, wallet: Address, speaker: TokenUser | None) -> tuple[str, ...]:
        """In a fixed order. Raises IdentityUnavailable if it is not known whether there is one."""
        async with session(self._pool) as connection:
            found = set(await pregenerations.ids_of_wallet(connection, wallet, PLATFORM))
        try:
            linked = () if speaker is None else await self._linked(speaker)
        except IdentityUnavailable:
            if not found:
                raise
            linked = ()
        found |= {account.user_id for account in linked if account.provider == PLATFORM}
        return tuple(sorted(found)[:MOST_ACCOUNTS])

    async def is_met(self, constraint: ChatConstraint, accounts: tuple[str, ...]) -> bool:
        """Raises ChatUnavailable."""
        heard = await asyncio.gather(*(self._heard(constraint, account) for account in accounts))
        failures = [one for one in heard if isinstance(one, ChatUnavailable)]
        verdict = combine_verdicts(
            None if isinstance(one, ChatUnavailable) else one for one in heard
        )
        if verdict is None:
            raise failures[0]
        return verdict

    async def _heard(self, constraint: ChatConstraint, account: str) -> bool | ChatUnavailable:
        if self._platform is None:
            return ChatUnavailable("no chat platform is configured")
        try:
            return is_satisfied(constraint, await self._platform.observe(constraint, account))
        except ChatUnavailable as failure:
            return failure

    async def _linked(self, speaker: TokenUser) -> tuple[OAuthAccount, ...]:
        """An identity token names them itself; of an access token the provider knows."""
        if speaker.wallets is not None or self._identities is None:
            return speaker.accounts
        return await self._identities.accounts_of(speaker.subject)
