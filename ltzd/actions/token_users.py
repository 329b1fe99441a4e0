"""Whose token it is, and which wallets its user may speak for."""

from ltzd.actions.identities import Identities, UserTokens
from ltzd.errors import ValidationFailed
from ltzd.providers.identity_tokens import TokenUser
from ltzd.values import Address


class TokenUsers:
    """An identity token names its user's wallets itself; for an access token we ask the provider.

    Raises Unauthorized for a token that does not count, IdentityUnavailable if nobody can tell.
    """

    def __init__(self, tokens: UserTokens, identity: Identities) -> None:
        self._tokens = tokens
        self._identity = identity

    async def user_of(self, token: str) -> TokenUser:
        return await self._tokens.user_of(token)

    async def wallets_of(self, user: TokenUser) -> tuple[Address, ...]:
        return await self._wallets(user, None)

    async def require_wallet(self, user: TokenUser, wallet: Address) -> None:
        """Raises ValidationFailed for a wallet of anybody else's."""
        if wallet not in await self._wallets(user, wallet):
            raise ValidationFailed("userAddress is not a wallet of the token's user")

    async def _wallets(self, user: TokenUser, wanted: Address | None) -> tuple[Address, ...]:
        if user.wallets is not None:
            return user.wallets
        return await self._identity.wallets_of(user.subject, wanted=wanted)
