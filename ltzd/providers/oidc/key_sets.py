"""Which keys of a JSON Web Key Set may have signed a token, and with which algorithm.

A key is kept once for each algorithm that it serves, under both names: so a token whose header
names another algorithm than its key's finds no key, and no key is ever handed to the wrong check.
Decided without I/O; not every row need be a key, and what else is in a row is not read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from ltzd.providers.identity.answers import MalformedAnswerError, Reply, object_in
from ltzd.providers.key_sets import MOST_KEYS
from ltzd.providers.oidc.policy import Algorithm

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

_LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 8192
"""A check takes time with the square of it."""
_LARGEST_EXPONENT = 2**32


def place_of(algorithm: str, kid: str) -> str:
    """What a key is kept under: no algorithm's name holds a space."""
    return f"{algorithm} {kid}"


def issuer_keys_in(reply: Reply, algorithms: tuple[Algorithm, ...]) -> dict[str, PublicKey]:
    """By `place_of`. Raises MalformedAnswerError, also for a set without a usable key, since
    an issuer that signs has one."""
    rows = object_in(reply.body).get("keys")
    if not isinstance(rows, list) or len(rows) > MOST_KEYS:
        raise MalformedAnswerError("the key set has no list of keys or too many")
    keys: dict[str, PublicKey] = {}
    for row in rows:
        if isinstance(row, dict):
            for place, key in _keys_of(row, algorithms):
                keys.setdefault(place, key)
    if not keys:
        raise MalformedAnswerError(f"the key set has no key for {', '.join(algorithms)}")
    return keys


def _keys_of(
    row: Mapping[str, object], algorithms: tuple[Algorithm, ...]
) -> Iterator[tuple[str, PublicKey]]:
    kid, kind = row.get("kid"), row.get("kty")
    if not isinstance(kid, str) or not kid or not isinstance(kind, str) or not _is_to_verify(row):
        return
    read, served = _KINDS.get(kind, (_nothing, ()))
    wanted = [each for each in served if each in algorithms and row.get("alg", each) == each]
    key = read(row) if wanted else None
    if key is not None:
        for algorithm in wanted:
            yield place_of(algorithm, kid), key


def _is_to_verify(row: Mapping[str, object]) -> bool:
    uses = row.get("key_ops", ["verify"])
    return row.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses


def _nothing(_row: Mapping[str, object]) -> PublicKey | None:
    return None


def _rsa(row: Mapping[str, object]) -> PublicKey | None:
    key = _made(RSAAlgorithm.from_jwk, row, "kty", "n", "e")
    if not isinstance(key, RSAPublicKey):
        return None
    is_fit = (
        _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS
        and key.public_numbers().e <= _LARGEST_EXPONENT
    )
    return key if is_fit else None


def _p256(row: Mapping[str, object]) -> PublicKey | None:
    key = _made(ECAlgorithm.from_jwk, row, "kty", "crv", "x", "y")
    is_fit = isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1)
    return key if is_fit else None  # type: ignore[return-value]


def _ed25519(row: Mapping[str, object]) -> PublicKey | None:
    key = _made(OKPAlgorithm.from_jwk, row, "kty", "crv", "x")
    return key if isinstance(key, Ed25519PublicKey) else None


def _made(
    make: Callable[[dict[str, str]], object], row: Mapping[str, object], *members: str
) -> object:
    """Only of these members: with a `d` it would be a private key."""
    texts = {name: row[name] for name in members if isinstance(row.get(name), str)}
    if len(texts) < len(members):
        return None
    try:
        return make(texts)  # type: ignore[arg-type]
    except (jwt.InvalidKeyError, ValueError, TypeError, OverflowError):
        return None


_Kind = tuple[Callable[[Mapping[str, object]], PublicKey | None], tuple[Algorithm, ...]]
_KINDS: Final[Mapping[str, _Kind]] = {
    "RSA": (_rsa, ("RS256", "PS256")),
    "EC": (_p256, ("ES256",)),
    "OKP": (_ed25519, ("EdDSA",)),
}
