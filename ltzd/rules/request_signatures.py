"""LTZ-HMAC v1, the signature of a brand's requests.

    v1 \\n timestamp \\n nonce \\n METHOD \\n request target as sent \\n hex(SHA-256(body))

is signed with HMAC-SHA256 and the brand's security key. Four headers carry it: X-LTZ-Brand-Id,
X-LTZ-Timestamp (Unix seconds), X-LTZ-Nonce (16 to 64 of A-Z a-z 0-9 _ -) and X-LTZ-Signature
(`v1=<hex>`, several separated by commas). The scheme joins those of AWS and of payment providers:
it covers method, target and body, and a nonce is valid for one request.

Does not check for replay: callers record the nonce for NONCE_SECONDS.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from ltzd.errors import SignatureRefused

VALID_SECONDS = 300
"""How far the timestamp may differ from the server's clock, either way."""
NONCE_SECONDS = 2 * VALID_SECONDS + 60
"""How long a used nonce is remembered: a signature whose timestamp is in the future is valid for
twice VALID_SECONDS. The rest is for clocks that differ from each other."""
NONCE_WAS_USED = "X-LTZ-Nonce was used before"
"""The error of a replayed request. The WordPress plugin reads it: its order was rewarded before."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_SIGNATURE = re.compile(r"v1=[0-9a-f]{64}")
_MOST_SIGNATURES = 4
_EMPTY_BODY_HASH = hashlib.sha256(b"").hexdigest().encode()


class SignedRequest(msgspec.Struct, frozen=True):
    """The four headers as received, empty where missing, and the signed parts of the request."""

    brand_id: str
    timestamp: str
    nonce: str
    signatures: str
    method: str
    target: bytes
    body: bytes


def signature(key: str, timestamp: str, nonce: str, method: str, target: bytes, body: bytes) -> str:
    """The value of X-LTZ-Signature."""
    head = f"v1\n{timestamp}\n{nonce}\n{method}\n".encode()
    content = hashlib.sha256(body).hexdigest().encode() if body else _EMPTY_BODY_HASH
    keyed = _keyed(key).copy()
    keyed.update(head + target + b"\n" + content)
    return "v1=" + keyed.hexdigest()


@lru_cache(maxsize=1_024)
def _keyed(key: str) -> hmac.HMAC:
    """The HMAC of this key before any content: setting it up takes twice as long as the rest."""
    return hmac.new(key.encode(), digestmod="sha256")


def check_form(signed: SignedRequest, now_seconds: float) -> None:
    """Check the headers as far as possible without a key. Raises SignatureRefused."""
    if not _TIMESTAMP.fullmatch(signed.timestamp):
        raise SignatureRefused("X-LTZ-Timestamp must be Unix seconds")
    if not _NONCE.fullmatch(signed.nonce):
        raise SignatureRefused("X-LTZ-Nonce must be 16 to 64 letters, digits, _ and -")
    given = _given(signed)
    if len(given) > _MOST_SIGNATURES or not all(map(_SIGNATURE.fullmatch, given)):
        raise SignatureRefused("X-LTZ-Signature must be v1= and 64 hex digits")
    if abs(now_seconds - int(signed.timestamp)) > VALID_SECONDS:
        raise SignatureRefused(f"X-LTZ-Timestamp is more than {VALID_SECONDS} seconds off")


def is_signed_with(signed: SignedRequest, keys: Iterable[str]) -> bool:
    """Whether one of the keys made one of the signatures, in constant time for each."""
    given = [text.encode() for text in _given(signed)]
    matches = False
    for key in keys:
        right = signature(
            key, signed.timestamp, signed.nonce, signed.method, signed.target, signed.body
        ).encode()
        for candidate in given:
            matches |= hmac.compare_digest(candidate, right)
    return matches


def _given(signed: SignedRequest) -> list[str]:
    return [text.strip() for text in signed.signatures.split(",")]
