"""The door through which a test logs a user in: an e-mail gives tokens and the wallet's key."""

from aiohttp import web

from ltzd.dev.sandbox.requests import (
    Body,
    allow_only,
    door_object,
    email_in,
    json_reply,
    number_in,
    object_in,
)
from ltzd.dev.sandbox.tokens import TokenMint
from ltzd.dev.sandbox.users import User, UserBook
from ltzd.values import hex_of

_LIFETIME_SECONDS = 3600
_MOST_SECONDS = 10 * 365 * 86_400


class TokenDoor:
    def __init__(self, users: UserBook, mint: TokenMint) -> None:
        self._users = users
        self._mint = mint

    async def open(self, request: web.Request) -> web.Response:
        body = await door_object(request)
        allow_only(body, "email", "claims", "expiresIn")
        email = email_in(body, "email")
        lifetime, claims = _lifetime_in(body), object_in(body, "claims") if "claims" in body else {}
        user = await self._user_with_wallet(email)
        wallet = user.wallets[0]
        return json_reply(
            {
                "accessToken": self._mint.access_token(user, lifetime, claims),
                "identityToken": self._mint.identity_token(user, lifetime, claims),
                "subject": user.subject,
                "walletAddress": wallet.address,
                "privateKey": hex_of(wallet.private_key),
            }
        )

    async def _user_with_wallet(self, email: str) -> User:
        """The same user and wallet that an event for this address finds or makes."""
        account: dict[str, object] = {"type": "email", "address": email}
        user = self._users.find("email", "address", email) or self._users.make([account], 1, {})
        if not user.wallets:
            self._users.add_wallets(user, 1, None)
        return await self._users.saved(user)


def _lifetime_in(body: Body) -> float:
    """Negative for a token that has expired already."""
    if "expiresIn" not in body:
        return _LIFETIME_SECONDS
    return number_in(body, "expiresIn", -_MOST_SECONDS, _MOST_SECONDS)
