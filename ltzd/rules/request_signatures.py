"""LTZ-HMAC v1: how a brand signs a request, and how the signature is checked.

    v1 \\n timestamp \\n nonce \\n METHOD \\n request target as sent \\n hex(SHA-256(body))

is signed with HMAC-SHA256 under the brand's security key. Four headers carry it: X-LTZ-Brand-Id,
X-LTZ-Timestamp (Unix seconds), X-LTZ-Nonce (16 to 64 of A-Z a-z 0-9 _ -) and X-LTZ-Signature
(`v1=<hex>`, several separated by commas). Source: AWS's and the payment providers' schemes, joined:
method, target and body are covered, and a nonce is good for one request.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from uuid import UUID

import msgspec

from ltzd.errors import SignatureRefused

VALID_SECONDS = 300
"""How far the timestamp may lie from our clock, either way."""

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_SIGNATURE = re.compile(r"v1=[0-9a-f]{64}")
_MOST_SIGNATURES = 4
_OF_NOTHING = hashlib.sha256(b"").hexdigest().encode()


class SignedRequest(msgspec.Struct, frozen=True):
    """The four headers as they came, empty where missing, and what they should have signed.

    `id` tells this request from another one that has the same nonce.
    """

    id: UUID
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
    content = hashlib.sha256(body).hexdigest().encode() if body else _OF_NOTHING
    return "v1=" + hmac.digest(key.encode(), head + target + b"\n" + content, "sha256").hex()


def check_form(signed: SignedRequest, now_seconds: float) -> None:
    """All that can be judged without a key. Raises SignatureRefused."""
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
    """Whether one of the keys made one of the signatures; takes the same time for each."""
    given = [one.encode() for one in _given(signed)]
    matches = False
    for key in keys:
        right = signature(
            key, signed.timestamp, signed.nonce, signed.method, signed.target, signed.body
        ).encode()
        for one in given:
            matches |= hmac.compare_digest(one, right)
    return matches


def _given(signed: SignedRequest) -> list[str]:
    return [one.strip() for one in signed.signatures.split(",")]
