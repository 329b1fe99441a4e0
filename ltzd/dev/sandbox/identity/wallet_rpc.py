"""Wallet RPC of the identity provider: signs EIP-712 data with a user's wallet.

A wallet signs for its user and for the additional signer that it was created with. The app's
credentials alone are not enough: without that signer's signature over the request the answer is
401, with the text of the live service.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from aiohttp import web
from cachetools import LRUCache
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ltzd.dev.sandbox.identity.credentials import AppCredentials
from ltzd.dev.sandbox.identity.users import EmbeddedWallet, UserStore
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    json_object,
    json_reply,
    object_in,
    text_in,
)
from ltzd.values import hex_of

_METHOD = "eth_signTypedData_v4"
_MAX_KEY_LENGTH = 256
_MAX_ANSWERS = 10_000
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


@dataclass(frozen=True, slots=True)
class AppSigner:
    """The additional signer of the app's wallets: id and P-256 key, as in ltzd's settings."""

    id: str
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def key_text(self) -> str:
        der = self.key.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return "wallet-auth:" + base64.b64encode(der).decode()


def signer_id_of(app_id: str) -> str:
    return "q" + hashlib.sha256(app_id.encode()).hexdigest()[:23]


def app_signer(app: AppCredentials) -> AppSigner:
    """Derived from the app's secret, so that it stays the same for as long as the app exists."""
    seed = hashlib.sha256(b"further signer of " + app.app_secret.encode()).digest()
    secret = int.from_bytes(seed, "big") % (_P256_ORDER - 1) + 1
    return AppSigner(signer_id_of(app.app_id), ec.derive_private_key(secret, ec.SECP256R1()))


class WalletRpc:
    def __init__(self, users: UserStore, app: AppCredentials) -> None:
        self._users = users
        self._app_id = app.app_id
        self._signer = app_signer(app)
        # The request and its answer, by idempotency key.
        self._answers: LRUCache[str, tuple[bytes, dict[str, object]]] = LRUCache(_MAX_ANSWERS)

    async def answer(self, request: web.Request) -> web.Response:
        body = await json_object(request)
        wallet = self._users.wallet(request.match_info["wallet_id"])
        if wallet is None:
            return _error(404, "Wallet not found", "not_found")
        return self._refusal(request, body, wallet) or self._signed_once(request, body, wallet)

    def _refusal(
        self, request: web.Request, body: Body, wallet: EmbeddedWallet
    ) -> web.Response | None:
        given = request.headers.get("privy-authorization-signature", "")
        if wallet.signer != self._signer.id or not given:
            text = "No valid authorization keys or user signing keys available"
            return _error(401, text, "no_valid_user_session_keys")
        if not self._is_authorized(request, body, given):
            text = "No valid authorization signatures were provided"
            return _error(401, text, "zero_correct_authorization_signatures")
        return None

    def _is_authorized(self, request: web.Request, body: Body, signature: str) -> bool:
        headers = {"privy-app-id": self._app_id}
        if "privy-idempotency-key" in request.headers:
            headers["privy-idempotency-key"] = request.headers["privy-idempotency-key"]
        payload = {
            "version": 1,
            "method": request.method,
            "url": str(request.url),
            "body": body,
            "headers": headers,
        }
        try:
            self._signer.key.public_key().verify(
                base64.b64decode(signature, validate=True),
                msgspec.json.encode(payload, order="sorted"),
                ec.ECDSA(hashes.SHA256()),
            )
        except (InvalidSignature, binascii.Error):
            return False
        return True

    def _signed_once(
        self, request: web.Request, body: Body, wallet: EmbeddedWallet
    ) -> web.Response:
        key = request.headers.get("privy-idempotency-key")
        if key is None:
            return json_reply(_signed(body, wallet))
        if not 0 < len(key) <= _MAX_KEY_LENGTH:
            raise BadInputError("privy-idempotency-key", "must be text of 1 to 256 characters")
        fingerprint = msgspec.json.encode([wallet.id, body], order="sorted")
        if key not in self._answers:
            self._answers[key] = fingerprint, _signed(body, wallet)
        first_fingerprint, answer = self._answers[key]
        if first_fingerprint != fingerprint:
            raise BadInputError("privy-idempotency-key", "was used for another request")
        return json_reply(answer)


def _signed(body: Body, wallet: EmbeddedWallet) -> dict[str, object]:
    if text_in(body, "method") != _METHOD:
        raise BadInputError("method", f"must be {_METHOD}; the sandbox supports no other")
    typed_data = object_in(object_in(body, "params"), "typed_data")
    message = _checked(typed_data)
    # Imported at the first signature: eth-account is 15 % of the imports of `ltzd dev`.
    from eth_account import Account  # noqa: PLC0415
    from eth_account.messages import encode_typed_data  # noqa: PLC0415

    try:
        signature = Account.sign_message(
            encode_typed_data(full_message=message), wallet.private_key
        )
    except Exception as error:
        raise BadInputError("params.typed_data", "is not valid EIP-712 data") from error
    return {
        "method": _METHOD,
        "data": {"signature": hex_of(signature.signature), "encoding": "hex"},
    }


def _checked(typed_data: Body) -> dict[str, object]:
    """The message as eth-account expects it, with `primaryType` for `primary_type`."""
    parts: Mapping[str, object] = {
        name: object_in(typed_data, name) for name in ("types", "domain", "message")
    }
    return {**parts, "primaryType": text_in(typed_data, "primary_type")}


def _error(status: int, text: str, code: str) -> web.Response:
    return json_reply({"error": text, "code": code}, status)
