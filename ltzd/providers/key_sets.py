"""Which keys a JSON Web Key Set tells of, decided without I/O; not every row need be a key."""

from collections.abc import Iterator, Mapping

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from jwt import InvalidKeyError
from jwt.algorithms import ECAlgorithm

from ltzd.providers.identity.answers import MalformedAnswerError, Reply, object_in

MOST_KEYS = 100
"""In one set; two are usual while keys change."""
_MEMBERS = ("kty", "crv", "x", "y")


def signing_keys_in(reply: Reply) -> dict[str, EllipticCurvePublicKey]:
    """The keys of a JSON Web Key Set that may have signed an ES256 token, by their `kid`.

    A set without any raises: a provider that signs has a key, so the set is an accident.
    """
    rows = object_in(reply.body).get("keys")
    if not isinstance(rows, list) or len(rows) > MOST_KEYS:
        raise MalformedAnswerError("the key set has no list of keys, or too long a one")
    keys: dict[str, EllipticCurvePublicKey] = {}
    for kid, key in _signing_keys(rows):
        keys.setdefault(kid, key)
    if not keys:
        raise MalformedAnswerError("the key set has no key for ES256")
    return keys


def _signing_keys(rows: list[object]) -> Iterator[tuple[str, EllipticCurvePublicKey]]:
    """Skips keys of another kind, and what is no key at all."""
    for row in rows:
        kid = row.get("kid") if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(kid, str) or not kid:
            continue
        if row.get("use", "sig") != "sig" or row.get("alg", "ES256") != "ES256":
            continue
        key = _p256_key(row)
        if key is not None:
            yield kid, key


def _p256_key(row: Mapping[str, object]) -> EllipticCurvePublicKey | None:
    # Only these members: with a `d` it would be a private key.
    members = {name: row.get(name) for name in _MEMBERS}
    if members["crv"] != "P-256" or not all(isinstance(text, str) for text in members.values()):
        return None
    try:
        key = ECAlgorithm.from_jwk(members)
    except (InvalidKeyError, ValueError):
        return None
    return key if isinstance(key, EllipticCurvePublicKey) else None
