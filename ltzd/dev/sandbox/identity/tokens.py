"""Access and identity tokens as the identity provider signs them (ES256).

The caller may override any claim, also with an invalid value. A claim set to None is left out.
"""

import secrets
import time
from collections.abc import Mapping

import jwt
import msgspec

from ltzd.dev.sandbox.identity.credentials import TokenSigningKeys
from ltzd.dev.sandbox.identity.users import SandboxUser

Claims = Mapping[str, object]

_ISSUER = "privy.io"


class TokenIssuer:
    def __init__(self, app_id: str, keys: TokenSigningKeys) -> None:
        self.app_id = app_id
        self._keys = keys

    def access_token(self, user: SandboxUser, lifetime_seconds: float, overrides: Claims) -> str:
        claims = {**self._common(user, lifetime_seconds), "sid": "c" + secrets.token_hex(12)}
        return self._signed(claims, overrides)

    def identity_token(self, user: SandboxUser, lifetime_seconds: float, overrides: Claims) -> str:
        claims = {
            **self._common(user, lifetime_seconds),
            "cr": str(user.created_at),
            "linked_accounts": _as_text(_reduced_accounts(user)),
            "custom_metadata": _as_text(user.custom_metadata),
        }
        return self._signed(claims, overrides)

    def _common(self, user: SandboxUser, lifetime_seconds: float) -> dict[str, object]:
        now = int(time.time())
        return {
            "iss": _ISSUER,
            "aud": self.app_id,
            "sub": user.subject,
            "iat": now,
            "exp": now + int(lifetime_seconds),
        }

    def _signed(self, claims: Claims, overrides: Claims) -> str:
        payload = {name: v for name, v in {**claims, **overrides}.items() if v is not None}
        # PyJWS instead of jwt.encode, which refuses to sign invalid claims.
        return jwt.PyJWS().encode(
            msgspec.json.encode(payload),
            self._keys.newest,
            algorithm="ES256",
            headers={"typ": "JWT", "kid": self._keys.key_id},
        )


def _reduced_accounts(user: SandboxUser) -> list[dict[str, object]]:
    verified = {"lv": user.created_at}
    accounts = [{**_reduced(account), **verified} for account in user.accounts]
    wallets = [
        {
            "type": "wallet",
            "address": wallet.address,
            "chain_type": "ethereum",
            "wallet_client_type": "privy",
            "id": wallet.id,
            "lv": wallet.created_at,
        }
        for wallet in user.wallets
    ]
    return [*accounts, *wallets]


_REDUCED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "google_oauth": ("subject", "email", "name"),
    "twitter_oauth": ("subject", "username", "name"),
    "spotify_oauth": ("subject",),
    "telegram": ("telegram_user_id", "username"),
    "email": ("address",),
    "wallet": ("address", "chain_type"),
    "custom_auth": ("custom_user_id",),
}


def _reduced(account: Mapping[str, object]) -> dict[str, object]:
    kind = str(account["type"])
    if kind == "phone":
        return {"type": kind, "phone_number": account["number"]}
    names = _REDUCED_FIELDS.get(kind, ("subject", "username"))
    row = {"type": kind, **{name: account[name] for name in names if name in account}}
    if "profile_picture_url" in account:
        row["pfp"] = account["profile_picture_url"]
    return row


def _as_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
