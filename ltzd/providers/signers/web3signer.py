"""Consensys web3signer: signatures by `POST /api/v1/eth1/sign/{public key}`.

web3signer hashes the data with Keccak-256, and returns r, s and v in hex as plain text. The bytes
to sign are the transaction's, so that this one request serves every type of transaction.
(`eth_signTransaction` would return a whole transaction, which would have to be decoded and
compared.)
"""

import binascii
import ssl
from dataclasses import dataclass, field

import coincurve
import msgspec

from ltzd.errors import Misconfigured
from ltzd.providers.outbound.http_client import (
    AsyncCloseable,
    HttpResponse,
    MalformedAnswerError,
)
from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json
from ltzd.providers.outbound.retries import TransientFailure
from ltzd.providers.signers.calls import SignerCallPolicy, SignerCalls

_SIGNATURE_BYTES = 65


@dataclass(frozen=True, slots=True)
class Web3SignerPolicy:
    """`url` is the signer's base URL. `public_key` names one of its keys, in 64 bytes; without it
    the signer must have a single key. `tls` replaces the machine's certificate authorities, and may
    hold a client certificate."""

    url: str
    public_key: bytes | None = None
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    calls: SignerCallPolicy = field(default_factory=SignerCallPolicy)


class Web3SignerKey(AsyncCloseable):
    def __init__(self, policy: Web3SignerPolicy) -> None:
        self._url = policy.url.rstrip("/") + "/api/v1/eth1"
        self._public_key = policy.public_key
        self._calls = SignerCalls("web3signer", policy.calls, policy.tls)

    async def close(self) -> None:
        await self._calls.close()

    async def public_key(self) -> bytes:
        """Raises SignerUnavailable, and Misconfigured if the signer has not one key only."""
        if self._public_key is None:
            keys = await self._calls.repeat(self._list_keys)
            if len(keys) != 1:
                raise Misconfigured(
                    f"The web3signer has {len(keys)} keys; name the wallet's in public_key."
                )
            self._public_key = keys[0]
        return self._public_key

    async def sign(self, payload: bytes) -> tuple[int, int]:
        """Raises SignerUnavailable."""
        key = await self.public_key()
        body = msgspec.json.encode({"data": "0x" + payload.hex()})
        return await self._calls.repeat(lambda: self._sign(key, body))

    async def _list_keys(self) -> list[bytes]:
        response = await self._calls.request("GET", f"{self._url}/publicKeys")
        self._check(response)
        try:
            keys = decode_json(response.body)
        except InvalidJsonError as error:
            raise MalformedAnswerError("the list of keys is not JSON") from error
        if not isinstance(keys, list):
            raise MalformedAnswerError("the list of keys is not a list")
        try:
            return [parse_public_key(str(key)) for key in keys]
        except ValueError as error:
            raise MalformedAnswerError("a key is not one of secp256k1") from error

    async def _sign(self, key: bytes, body: bytes) -> tuple[int, int]:
        response = await self._calls.request(
            "POST",
            f"{self._url}/sign/0x{key.hex()}",
            data=body,
            headers={"Content-Type": "application/json"},
        )
        self._check(response)
        try:
            signature = binascii.unhexlify(response.body.strip().removeprefix(b"0x"))
        except binascii.Error as error:
            raise MalformedAnswerError("the signature is not in hex") from error
        if len(signature) != _SIGNATURE_BYTES:
            raise MalformedAnswerError(f"the signature has {len(signature)} bytes")
        return int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")

    def _check(self, response: HttpResponse) -> None:
        if response.is_transient:
            raise TransientFailure("web3signer does not sign now", f"status {response.status}")
        if response.status == 404:
            raise self._calls.unavailable("web3signer does not have the wallet's key", "status 404")
        if not response.is_success:
            raise self._calls.unavailable(
                "web3signer refuses the request", f"status {response.status}"
            )


def parse_public_key(text: str) -> bytes:
    """The 64 bytes of a key in hex, compressed or not, with or without 0x. Raises ValueError."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
        key = coincurve.PublicKey(b"\x04" + raw if len(raw) == 64 else raw)
    except ValueError as error:
        raise ValueError("must be a public key of secp256k1 in hex") from error
    return key.format(compressed=False)[1:]
