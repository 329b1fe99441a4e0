"""The parts of a token's check that do not depend on who issues it.

A refusal is always Unauthorized in the same words; the metric `TOKEN_CHECKS` counts its reason.
"""

from base64 import urlsafe_b64decode
from typing import Any, Literal, TypeVar

import jwt
import msgspec

from ltzd import telemetry
from ltzd.errors import Unauthorized

MAX_TOKEN_LENGTH = 16 * 1024
CLOCK_SKEW_SECONDS = 30.0
"""How far our clock may be behind the issuer's: a token is used in the second it is made.

A clock that is further off is a condition (`ConditionPolicy.clock_seconds`).

`exp` has no such allowance: that would only lengthen the life of a token that may be stolen, and
the user's program has had a new token for minutes.
"""

Reason = Literal["malformed", "unknown_key", "bad_signature", "wrong_claims", "expired"]
Header = TypeVar("Header")


def refused(reason: Reason) -> Unauthorized:
    """Count the refusal. To be raised `from None`: the libraries' errors quote their input."""
    telemetry.TOKEN_CHECKS.labels(reason).inc()
    return Unauthorized("Invalid or expired token")


def decode_header(encoded: str, decoder: "msgspec.json.Decoder[Header]") -> Header:
    """Read a token's first part; nothing is verified yet. Raises Unauthorized."""
    try:
        return decoder.decode(urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)))
    except (ValueError, RecursionError):
        raise refused("malformed") from None


def verified_payload(jws: jwt.PyJWS, token: str, key: Any, algorithm: str) -> bytes:
    """Return the payload that `key` has signed with `algorithm`. Raises Unauthorized."""
    try:
        payload: bytes = jws.decode(token, key, algorithms=[algorithm])
    except jwt.InvalidSignatureError:
        raise refused("bad_signature") from None
    except jwt.InvalidTokenError:
        raise refused("malformed") from None
    return payload
