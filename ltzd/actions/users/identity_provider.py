"""What ltzd asks of whoever keeps its users' wallets and makes their tokens.

Two answer it: the client of a vendor (`providers/identity/client.py`) and wallets of our own
(`actions/users/custodial_wallets.py`). When nobody can tell, everything raises Unavailable: of the
identity provider, or of the database where the wallets are ours.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from ltzd.providers.identity.client import IdentityUser, UserProfile
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address


class IdentityProvider(Protocol):
    @property
    def under_way(self) -> int:
        """How many users are being looked up or made now."""
        ...

    async def wallet_of_email(self, email: str) -> IdentityUser:
        """The same for an address at any time; made if need be. Raises InvalidFields."""
        ...

    async def wallet_of_account(self, account: OAuthAccount) -> IdentityUser:
        """The same for an account at any time; made if need be. Raises AccountRefused."""
        ...

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Every wallet of the user, none of one that nobody knows."""
        ...

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        """The accounts that are proven to be the user's."""
        ...

    async def profile_of(self, subject: str) -> UserProfile | None:
        """Who he is, if he is known and has a wallet."""
        ...

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """65 bytes (r, s, v of 27 or 28) by the wallet's key over EIP-712 data that ltzd made."""
        ...

    async def ping(self) -> bool:
        """Whether it answers; never raises."""
        ...


class TokenVerifier(Protocol):
    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized."""
        ...
