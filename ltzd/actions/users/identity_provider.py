"""The interface to the service that keeps users' wallets and issues their tokens.

There are two implementations: the client of a vendor (`providers/identity/client.py`) and ltzd's
own wallets (`actions/users/custodial_wallets.py`). Every method raises Unavailable while the
service cannot answer: IdentityUnavailable for a vendor, DatabaseUnavailable for ltzd's own wallets.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from ltzd.providers.identity.client import IdentityUser, UserProfile
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import Address


class IdentityProvider(Protocol):
    @property
    def under_way(self) -> int:
        """How many users are being looked up or created now."""
        ...

    async def wallet_of_email(self, email: str, brand: Address | None = None) -> IdentityUser:
        """Return the address's user, who is created on first use and never changes.

        While many users are looked up, the brands that ask for them take turns. Raises
        InvalidFields.
        """
        ...

    async def wallet_of_account(
        self, account: OAuthAccount, party: Hashable = None
    ) -> IdentityUser:
        """Return the account's user, who is created on first use and never changes.

        While many users are looked up, the parties that ask for them take turns. Raises
        AccountRefused.
        """
        ...

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Return every wallet of the user; empty for an unknown user."""
        ...

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        """Return the OAuth accounts that are proven to be the user's."""
        ...

    async def profile_of(self, subject: str) -> UserProfile | None:
        """Return the person that the subject belongs to, if known and with a wallet."""
        ...

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """Sign EIP-712 data that ltzd built; returns 65 bytes (r, s, v of 27 or 28)."""
        ...

    async def ping(self) -> bool:
        """Return whether the service answers; never raises."""
        ...


class TokenVerifier(Protocol):
    async def ping(self) -> bool:
        """Return whether the issuer of tokens answers; never raises."""
        ...

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized."""
        ...
