"""Authenticates tokens, and tells which wallets their users may act for."""

import asyncio

from ltzd.actions.users.identity_provider import IdentityProvider, TokenVerifier
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.concurrency.futures import done_future
from ltzd.errors import ValidationFailed
from ltzd.providers.identity.tokens import TokenUser
from ltzd.values import Address


class TokenAuthenticator:
    """An identity token names its user's wallets; for an access token the provider is asked.

    Once the wallets are known, the user's proven e-mail addresses are migrated to them: by
    `wallets_of`, or by `begin_migration` after `require_wallet`. Raises Unauthorized for an invalid
    token, and IdentityUnavailable if the token cannot be verified.
    """

    def __init__(
        self,
        tokens: TokenVerifier,
        identity: IdentityProvider,
        migration: WalletMigration | None = None,
    ) -> None:
        self._tokens = tokens
        self._identity = identity
        self._migration = migration

    async def user_of(self, token: str) -> TokenUser:
        return await self._tokens.user_of(token)

    async def wallets_of(
        self, user: TokenUser, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        wallets = await self._wallets(user, wanted)
        if self._migration is not None:
            await self._migration.migrate(user)
        return wallets

    async def require_wallet(self, user: TokenUser, wallet: Address) -> None:
        """Raises ValidationFailed if the wallet is not the user's."""
        if wallet not in await self._wallets(user, wallet):
            raise ValidationFailed("userAddress is not a wallet of the token's user")

    def begin_migration(self, user: TokenUser) -> asyncio.Future[None]:
        """Migrate the user's addresses, beside what the caller of this method does meanwhile.

        The caller awaits the future before it answers.
        """
        if self._migration is None or not self._migration.is_due(user):
            return done_future(None)
        return asyncio.ensure_future(self._migration.migrate(user))

    async def _wallets(self, user: TokenUser, wanted: Address | None) -> tuple[Address, ...]:
        wallets = user.wallets
        if wallets is None:
            wallets = await self._identity.wallets_of(user.subject, wanted=wanted)
        return wallets
