"""Credentials of ltzd's app at the identity provider, and of its account at the payment provider.

They are created once and kept in the journal, so that tokens and settings stay valid after a
restart.
"""

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from ltzd.dev.sandbox.journal import Record


@dataclass(frozen=True, slots=True)
class AppCredentials:
    app_id: str
    app_secret: str = field(repr=False)
    signing_key: ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        app_id = "c" + secrets.token_hex(12)
        return cls(app_id, secrets.token_urlsafe(48), ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def from_record(cls, record: Record) -> Self:
        pem = str(record["signing_key"]).encode()
        key = serialization.load_pem_private_key(pem, password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(str(record["app_id"]), str(record["app_secret"]), key)

    def as_record(self) -> Record:
        pem = self.signing_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return {
            "kind": "app",
            "app_id": self.app_id,
            "app_secret": self.app_secret,
            "signing_key": pem.decode(),
        }


@dataclass(frozen=True, slots=True)
class PaymentsAccount:
    """The API key at the payment provider, and the secret that signs its events."""

    secret_key: str = field(repr=False)
    signing_secret: str = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        return cls("sk_test_" + secrets.token_hex(24), "whsec_" + secrets.token_hex(24))

    @classmethod
    def from_record(cls, record: Record) -> Self:
        return cls(str(record["secret_key"]), str(record["signing_secret"]))

    def as_record(self) -> Record:
        return {
            "kind": "account",
            "secret_key": self.secret_key,
            "signing_secret": self.signing_secret,
        }


class TokenSigningKeys:
    """The token-signing keys; the newest one signs. Rotated keys are lost when the process ends."""

    def __init__(self, app: AppCredentials) -> None:
        self.newest = app.signing_key
        self._published = [app.signing_key]

    def rotate(self, *, keeps_old: bool) -> None:
        """Sign with a new key from now on; `keeps_old` leaves the old keys in the key set."""
        self.newest = ec.generate_private_key(ec.SECP256R1())
        self._published = [*(self._published if keeps_old else ()), self.newest]

    @property
    def key_id(self) -> str:
        return _thumbprint(_public_jwk(self.newest))

    def key_set(self) -> dict[str, object]:
        jwks = map(_public_jwk, self._published)
        return {
            "keys": [{**jwk, "use": "sig", "alg": "ES256", "kid": _thumbprint(jwk)} for jwk in jwks]
        }


def _public_jwk(key: ec.EllipticCurvePrivateKey) -> Mapping[str, object]:
    return ECAlgorithm.to_jwk(key.public_key(), as_dict=True)


def _thumbprint(jwk: Mapping[str, object]) -> str:
    """The JWK thumbprint of RFC 7638."""
    members = {name: jwk[name] for name in ("crv", "kty", "x", "y")}
    digest = hashlib.sha256(msgspec.json.encode(members)).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
