"""Checks chat constraints against all of a user's accounts on the chat platform.

A user's accounts are those that the verified token names, those that the identity provider has for
the token's subject, and those that the wallet was created for before its owner ever logged in.
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
"""The most accounts of a user that are checked; each costs one request."""


class ChatMembers:
    """Without a `platform` every check fails.

    Without `identities` a user has only the accounts that the token names and those that the wallet
    was created for.
    """

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
        """Return the accounts' ids, sorted. Raises IdentityUnavailable if they are not known."""
        async with session(self._pool) as connection:
            ids = set(await pregenerations.ids_of_wallet(connection, wallet, PLATFORM))
        try:
            linked = () if speaker is None else await self._linked(speaker)
        except IdentityUnavailable:
            if not ids:
                raise
            linked = ()
        ids |= {account.user_id for account in linked if account.provider == PLATFORM}
        return tuple(sorted(ids)[:MOST_ACCOUNTS])

    async def is_met(self, constraint: ChatConstraint, accounts: tuple[str, ...]) -> bool:
        """Raises ChatUnavailable."""
        results = await asyncio.gather(*(self._check(constraint, account) for account in accounts))
        failures = [result for result in results if isinstance(result, ChatUnavailable)]
        verdict = combine_verdicts(
            None if isinstance(result, ChatUnavailable) else result for result in results
        )
        if verdict is None:
            raise failures[0]
        return verdict

    async def _check(self, constraint: ChatConstraint, account: str) -> bool | ChatUnavailable:
        if self._platform is None:
            return ChatUnavailable("no chat platform is configured")
        try:
            return is_satisfied(constraint, await self._platform.observe(constraint, account))
        except ChatUnavailable as failure:
            return failure

    async def _linked(self, speaker: TokenUser) -> tuple[OAuthAccount, ...]:
        """Return the accounts of an identity token, or ask the provider about an access token."""
        if speaker.wallets is not None or self._identities is None:
            return speaker.accounts
        return await self._identities.accounts_of(speaker.subject)
