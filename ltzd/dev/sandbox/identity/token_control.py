"""The control endpoint that logs a user in by e-mail address or by an OAuth account.

The answer has the user's tokens and the wallet's private key. An unknown user is created, as by a
first log-in, with a wallet that has the app as additional signer. Accounts in `links` are moved to
the user, as when the vendor transfers an account after its owner has proved to be both users.
"""

from aiohttp import web

from ltzd.dev.sandbox.identity.accounts import Account, generated_account
from ltzd.dev.sandbox.identity.tokens import TokenIssuer
from ltzd.dev.sandbox.identity.users import SandboxUser, UserStore, WalletRequest
from ltzd.dev.sandbox.identity.wallet_rpc import signer_id_of
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    email_in,
    json_reply,
    list_in,
    number_in,
    object_in,
    text_in,
)
from ltzd.values import hex_of

_LIFETIME_SECONDS = 3600
_MAX_SECONDS = 10 * 365 * 86_400
_MAX_LINKS = 8


class TokenControl:
    def __init__(self, users: UserStore, issuer: TokenIssuer) -> None:
        self._users = users
        self._issuer = issuer

    async def handle(self, request: web.Request) -> web.Response:
        """POST {"email"} or {"provider", "id"}, with {"links"?, "claims"?, "expiresIn"?}."""
        body = await control_body(request)
        allow_only(body, "email", "provider", "id", "links", "claims", "expiresIn")
        account, links = _account_in(body), _links_in(body)
        lifetime, claims = _lifetime_in(body), object_in(body, "claims") if "claims" in body else {}
        user = await self._user_with_wallet(account)
        for link in links:
            self._users.link(user, link)
        await self._users.saved(user)
        wallet = user.wallets[0]
        return json_reply(
            {
                "accessToken": self._issuer.access_token(user, lifetime, claims),
                "identityToken": self._issuer.identity_token(user, lifetime, claims),
                "subject": user.subject,
                "walletAddress": wallet.address,
                "privateKey": hex_of(wallet.private_key),
            }
        )

    async def log_in(self, email: str) -> tuple[str, str]:
        """Return an access token of the address's owner, and the owner's wallet."""
        user = await self._user_with_wallet({"type": "email", "address": email})
        token = self._issuer.access_token(user, _LIFETIME_SECONDS, {})
        return token, user.wallets[0].address

    async def wallet_of_email(self, email: str) -> str:
        user = await self._user_with_wallet({"type": "email", "address": email})
        return user.wallets[0].address

    async def _user_with_wallet(self, account: Account) -> SandboxUser:
        """The user and wallet that an event or a pregeneration would find or create."""
        request = [WalletRequest(signer_id_of(self._issuer.app_id))]
        user = self._users.owner_of([account]) or self._users.create([account], request, {})
        if not user.wallets:
            self._users.add_wallets(user, request, None)
        return await self._users.saved(user)


def _account_in(body: Body) -> Account:
    if "provider" not in body and "id" not in body:
        return {"type": "email", "address": email_in(body, "email")}
    if "email" in body:
        raise BadInputError("email", "cannot be combined with provider and id")
    return generated_account(text_in(body, "provider"), text_in(body, "id"))


def _links_in(body: Body) -> list[Account]:
    rows = list_in(body, "links", _MAX_LINKS) if "links" in body else []
    if not all(isinstance(row, dict) for row in rows):
        raise BadInputError("links", "must be a list of JSON objects")
    return [_account_in(row) for row in rows if isinstance(row, dict)]


def _lifetime_in(body: Body) -> float:
    """The lifetime in seconds; a negative one makes a token that has expired."""
    if "expiresIn" not in body:
        return _LIFETIME_SECONDS
    return number_in(body, "expiresIn", -_MAX_SECONDS, _MAX_SECONDS)
