"""The keys of a JSON Web Key Set (RFC 7517) that may have signed a token. Decided without I/O.

PyJWT reads each key. This module skips keys for another use than to verify, keys for an algorithm
that the settings do not name, and RSA keys that are too weak or too slow to check. A row that holds
no key is skipped as well: a set may have rows for other programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError, object_in

Algorithm = Literal["RS256", "ES256", "PS256", "EdDSA"]
PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

MAX_KEYS = 100
"""Keys in one set; two are usual while keys change."""
_PUBLIC_MEMBERS: Final = ("kty", "crv", "x", "y", "n", "e")
_ALGORITHMS: Final[Mapping[str, tuple[Algorithm, ...]]] = {
    "RSA": ("RS256", "PS256"),
    "EC": ("ES256",),
    "OKP": ("EdDSA",),
}
_MIN_RSA_BITS = 2048
_MAX_RSA_BITS = 8192
"""A check takes time with the square of the size."""
_MAX_RSA_EXPONENT = 2**32


def key_name(algorithm: str, kid: str) -> str:
    """The name of a key in `verification_keys`.

    A key is listed once for each algorithm that it serves. So a token whose header names another
    algorithm finds no key, and no key is ever given to the wrong check.
    """
    return f"{algorithm} {kid}"  # no algorithm's name holds a space


def verification_keys(
    response: HttpResponse, algorithms: Sequence[Algorithm]
) -> dict[str, PublicKey]:
    """Return the keys of the set in `response` by `key_name`.

    Raises MalformedAnswerError, also for a set without a usable key: an issuer that signs has one,
    so the set is an accident.
    """
    rows = object_in(response).get("keys")
    if not isinstance(rows, list) or len(rows) > MAX_KEYS:
        raise MalformedAnswerError("the key set has no list of keys, or too many of them")
    keys: dict[str, PublicKey] = {}
    for row in rows:
        if isinstance(row, dict):
            for name, key in _keys_of(row, algorithms):
                keys.setdefault(name, key)
    if not keys:
        raise MalformedAnswerError(f"the key set has no key for {', '.join(algorithms)}")
    return keys


def _keys_of(
    row: Mapping[str, object], algorithms: Sequence[Algorithm]
) -> Iterator[tuple[str, PublicKey]]:
    kid, kty = row.get("kid"), row.get("kty")
    if not isinstance(kid, str) or not kid or not isinstance(kty, str) or not _may_verify(row):
        return
    served = [
        algorithm
        for algorithm in _ALGORITHMS.get(kty, ())
        if algorithm in algorithms and row.get("alg", algorithm) == algorithm
    ]
    key = _public_key(row, served[0]) if served else None
    if key is not None:
        for algorithm in served:
            yield key_name(algorithm, kid), key


def _may_verify(row: Mapping[str, object]) -> bool:
    operations = row.get("key_ops", ["verify"])
    is_for_signatures = row.get("use", "sig") == "sig"
    return is_for_signatures and isinstance(operations, list) and "verify" in operations


def _public_key(row: Mapping[str, object], algorithm: Algorithm) -> PublicKey | None:
    # Only the public members: PyJWT would make a private key of a row with a `d`.
    members = {name: row[name] for name in _PUBLIC_MEMBERS if name in row}
    try:
        key = jwt.PyJWK.from_dict(members, algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, AttributeError):
        return None
    return key if _is_strong_enough(key) else None


def _is_strong_enough(key: object) -> bool:
    match key:
        case RSAPublicKey():
            exponent = key.public_numbers().e
            return _MIN_RSA_BITS <= key.key_size <= _MAX_RSA_BITS and exponent <= _MAX_RSA_EXPONENT
        case EllipticCurvePublicKey():
            return isinstance(key.curve, SECP256R1)
    return isinstance(key, Ed25519PublicKey)
