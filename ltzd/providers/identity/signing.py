"""Signatures over EIP-712 data by wallets whose keys the identity provider holds.

The provider's wallet RPC signs for the wallet's owner and for a further signer that the wallet was
made with. We are that signer: each request carries a signature by our key (P-256, ECDSA with
SHA-256) over method, URL, body and the vendor's headers, in the canonical JSON of RFC 8785.

The returned signature is verified: one that is not the wallet's is a malformed answer.
"""

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

import structlog
from cachetools import LRUCache
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
)

from ltzd.errors import IdentityUnavailable, Misconfigured
from ltzd.providers.identity.answers import error_code_in, is_kept_by_owner, wallet_id_in
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.identity.typed_data import digest_of, normalised, signer_of, to_wire
from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError, object_in
from ltzd.values import Address, bytes_of, checksummed, hex_of

MAX_CACHED_WALLETS = 20_000
_METHOD = "eth_signTypedData_v4"
# The vendor's dashboard writes this before a key that it has made.
_KEY_PREFIX = "wallet-auth:"

_log = structlog.get_logger(__name__)


class TypedDataSigner:
    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls) -> None:
        """Raises Misconfigured."""
        self._app_id = policy.app_id
        self._key = None if policy.signer_key is None else parse_signer_key(policy.signer_key)
        self._calls = calls
        # A wallet's id never changes.
        self._ids: LRUCache[Address, str] = LRUCache(MAX_CACHED_WALLETS)

    async def sign(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """Raises ValueError for malformed data and for a wallet whose owner keeps the key, and
        IdentityUnavailable.
        """
        # In a thread, since the first call imports eth-account.
        digest = await asyncio.to_thread(digest_of, typed_data)
        body = {"method": _METHOD, "params": {"typed_data": to_wire(typed_data)}}
        async with self._calls.operation() as deadline:
            path = f"/v1/wallets/{await self._id_of(wallet, deadline)}/rpc"
            headers = self._headers(path, body)
            response = await self._calls.send(
                "POST", path, body, deadline=deadline, headers=headers
            )
            if not response.is_success:
                raise _signing_refusal(response, wallet)
            return _signature_in(response, digest, wallet)

    async def _id_of(self, wallet: Address, deadline: float) -> str:
        if wallet in self._ids:
            return self._ids[wallet]
        path, body = "/v1/users/wallet/address", {"address": checksummed(wallet)}
        response = await self._calls.send("POST", path, body, deadline=deadline)
        if not response.is_success:
            if response.status != 404:
                raise refusal_in(response)
            _log.warning("identity_wallet_unknown", wallet=hex_of(wallet))
            raise IdentityUnavailable("The identity provider does not know the wallet")
        wallet_id = wallet_id_in(response, wallet)
        if wallet_id is None:
            _log.warning("identity_wallet_held_elsewhere", wallet=hex_of(wallet))
            if is_kept_by_owner(response, wallet):
                raise ValueError("the wallet's owner keeps its key")
            raise IdentityUnavailable("The identity provider does not hold the wallet's key")
        self._ids[wallet] = wallet_id
        return wallet_id

    def _headers(self, path: str, body: Mapping[str, object]) -> dict[str, str]:
        """The idempotency key is a hash of the request, so that a repeat does not sign again."""
        content = hashlib.sha256(canonical({"path": path, "body": body})).hexdigest()
        headers = {"privy-idempotency-key": f"ltzd-sign-{content}"}
        if self._key is not None:
            payload = authorization_payload(self._app_id, self._calls.url(path), body, headers)
            signature = self._key.sign(payload, ECDSA(hashes.SHA256()))
            headers["privy-authorization-signature"] = base64.b64encode(signature).decode()
        return headers


def authorization_payload(
    app_id: str, url: str, body: Mapping[str, object], headers: Mapping[str, str]
) -> bytes:
    """Return the bytes that authorize a request when we sign them.

    `headers` are the vendor's own, without the app's id.
    """
    return canonical(
        {
            "version": 1,
            "method": "POST",
            "url": url,
            "body": body,
            "headers": {"privy-app-id": app_id, **headers},
        }
    )


def canonical(value: object) -> bytes:
    """Encode as RFC 8785 does, for values without fractions and with ASCII names."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def parse_signer_key(text: str) -> EllipticCurvePrivateKey:
    """Raises Misconfigured."""
    try:
        der = base64.b64decode(text.removeprefix(_KEY_PREFIX), validate=True)
        key = serialization.load_der_private_key(der, password=None)
    except (ValueError, TypeError, binascii.Error):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise Misconfigured(
            "The identity signer's key must be a P-256 key, PKCS #8 in base64, as its vendor"
            " gives it."
        ) from None
    return key


def _signing_refusal(response: HttpResponse, wallet: Address) -> IdentityUnavailable:
    if response.status not in {401, 403}:
        return refusal_in(response)
    _log.warning(
        "identity_signing_refused",
        wallet=hex_of(wallet),
        status=response.status,
        code=error_code_in(response),
    )
    return IdentityUnavailable("The identity provider does not allow ltzd to sign for the wallet")


def _signature_in(response: HttpResponse, digest: bytes, wallet: Address) -> bytes:
    data = object_in(response).get("data")
    text = data.get("signature") if isinstance(data, dict) else None
    try:
        signature = normalised(bytes_of(text if isinstance(text, str) else ""))
        is_from_wallet = signer_of(digest, signature) == wallet
    except ValueError:
        is_from_wallet = False
    if not is_from_wallet:
        raise MalformedAnswerError("the signature is not the wallet's")
    return signature
